"""Checkpoints on disk, each with a seal beside it: the checksums of its files, written last.

    checkpoints/
      step=000020.ckpt        a file, or a folder where a strategy writes shards
      step=000020.ckpt.seal   {"step": 20, "files": {"": {"bytes": …, "sha256": …}}, "metric": {"name": …, "value": …}}

A checkpoint without a seal was not written to its end; one that does not match its seal was damaged since. Neither is
loaded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contrastive_reasoning.distributed import from_first, this_rank
from experiments.system.checksums import checksums
from experiments.system.checksums import damage as damage_of
from experiments.system.files import sync, sync_all, write_json

CHECKPOINTS = "checkpoints"
CHECKPOINT, SEAL, PARTIAL = ".ckpt", ".seal", ".new"


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written, or none that can be trusted; the message is one sentence."""


class NotWritten(CheckpointError):
    """A checkpoint that could not be written, of several ranks perhaps by one alone."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What decides which checkpoint is the best."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A sealed checkpoint; without a metric where none was measured when it was written, as between validations."""

    path: Path
    step: int
    metric: Metric | None


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of ``step`` stands; up to a million names sort by step."""
    return folder / f"step={step:06d}{CHECKPOINT}"


def seal(path: Path, *, step: int, metric: Metric | None) -> None:
    """Sync a checkpoint to the disk, then write its seal."""
    files = checksums(path)
    sync_all(path)
    sync(path.parent.parent)  # in which the folder of checkpoints may be new
    write_json(_seal(path), {"step": step, "files": files, "metric": None if metric is None else asdict(metric)})


def kept(folder: Path) -> list[Kept]:
    """The sealed checkpoints, the oldest first; their files are not checked."""
    found: list[Kept] = []
    for path in folder.glob(f"*{CHECKPOINT}"):
        if _seal(path).is_file() and (content := _read(_seal(path))) is not None:
            metric = None if content["metric"] is None else Metric(**content["metric"])
            found.append(Kept(path=path, step=content["step"], metric=metric))
    return sorted(found, key=lambda one: one.step)


def newest(folder: Path) -> Path | None:
    """The newest sealed checkpoint, whose files are not checked."""
    found = kept(folder)
    return found[-1].path if found else None


def newest_sound_of_first(folder: Path) -> tuple[Path | None, list[str]]:
    """``newest_sound`` on every rank, as rank 0 finds: hashing a large checkpoint reads all of it.

    Raises CheckpointError on every rank where rank 0 does.
    """
    found: tuple[Path | None, list[str]] = (None, [])
    refused = None
    if this_rank() == 0:
        try:
            found = newest_sound(folder)
        except CheckpointError as error:
            refused = str(error)
    found, refused = from_first((found, refused))
    if refused is not None:
        raise CheckpointError(refused)
    return found


def newest_sound(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is undamaged, None where none was finished; a sentence for each newer one that is not.

    Raises:
        CheckpointError: where there are finished ones, and all are damaged.
    """
    passed_over: list[str] = []
    finished = 0
    for path in sorted(_begun(folder), key=_step, reverse=True):
        if (sentence := damage(path)) is None:
            return path, passed_over
        passed_over.append(sentence)
        finished += _seal(path).is_file()
    if finished:
        raise CheckpointError(f"{'; '.join(passed_over)}; none is left to go on from: remove {folder} to begin anew")
    return None, passed_over


def forget(folder: Path, *, after: Path | None) -> None:
    """Remove the seals of those later than ``after``, which are damaged: they are no longer the best or the last."""
    for path in _begun(folder):
        if after is None or _step(path) > _step(after):
            _seal(path).unlink(missing_ok=True)


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, in a sentence that names it; None: nothing."""
    if not _seal(path).is_file():
        return f"checkpoint {path} was not written to its end"
    if (content := _read(_seal(path))) is None:
        return f"checkpoint {path} cannot be judged, its seal {_seal(path).name} is damaged"
    return damage_of(path, content["files"], what="checkpoint")


def clear(folder: Path, *, keep: Sequence[Path]) -> None:
    """Remove all checkpoints but these, and partial files."""
    for path in [*_begun(folder), *folder.glob(f"*{PARTIAL}")]:
        if path not in keep:
            _seal(path).unlink(missing_ok=True)  # first: what has none does not count
            remove(path)


def remove(path: Path) -> None:
    """Remove a checkpoint, whichever of its two forms it has; nothing where there is none."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _begun(folder: Path) -> set[Path]:
    """The checkpoints in the folder, and those whose seal alone is there."""
    sealed = {path.with_suffix("") for path in folder.glob(f"*{CHECKPOINT}{SEAL}")}
    return sealed.union(folder.glob(f"*{CHECKPOINT}"))


def _step(path: Path) -> int:
    """Of a name as ``path_of`` makes it; −1 for another."""
    number = path.name.removeprefix("step=").removesuffix(CHECKPOINT)
    return int(number) if number.isdecimal() else -1


def _seal(path: Path) -> Path:
    return path.with_name(path.name + SEAL)


def _read(path: Path) -> dict[str, Any] | None:
    """The content of a seal; None where it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        step, files, metric = content["step"], content["files"], content["metric"]
        sound = isinstance(step, int) and all({"bytes", "sha256"} <= file.keys() for file in files.values())
        return content if sound and files and (metric is None or {"name", "value"} == metric.keys()) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
