"""Checkpoints on disk. Each has a seal file with the checksums of its files, written last.

    checkpoints/
      step=000020.ckpt        a file, or a folder if the strategy writes shards
      step=000020.ckpt.seal   {"step": 20, "files": {"": {"bytes": …, "sha256": …}}, "metric": {"name": …, "value": …}}

A checkpoint without a seal is incomplete, and one that does not match its seal is damaged. Neither is loaded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contrastive_reasoning.distributed import from_first, this_rank
from contrastive_reasoning.errors import EndsRun
from experiments.system.checksums import checksums, damage as damage_of
from experiments.system.files import sync, sync_all, write_json

CHECKPOINTS = "checkpoints"
CHECKPOINT, SEAL, PARTIAL = ".ckpt", ".seal", ".new"


class CheckpointError(EndsRun):
    """Raised if a checkpoint cannot be written or used, or a stage must not start; the message is one sentence."""


class NotWritten(CheckpointError):
    """Raised if a checkpoint cannot be written, possibly on one rank only."""

    alone = True


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The metric that selects the best checkpoint."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A sealed checkpoint. ``metric`` is None if nothing was validated at its step."""

    path: Path
    step: int
    metric: Metric | None


def path_of(folder: Path, step: int) -> Path:
    """Returns the path of the checkpoint of ``step``; names sort by step up to a million."""
    return folder / f"step={step:06d}{CHECKPOINT}"


def seal(path: Path, *, step: int, metric: Metric | None) -> None:
    """Syncs a checkpoint to disk, then writes its seal."""
    files = checksums(path)
    sync_all(path)
    sync(path.parent.parent)  # the folder of checkpoints may be new in it
    write_json(_seal(path), {"step": step, "files": files, "metric": None if metric is None else asdict(metric)})


def kept_checkpoints(folder: Path) -> list[Kept]:
    """Returns the sealed checkpoints, oldest first, without checking their files."""
    found: list[Kept] = []
    for path in folder.glob(f"*{CHECKPOINT}"):
        if _seal(path).is_file() and (content := _read(_seal(path))) is not None:
            metric = None if content["metric"] is None else Metric(**content["metric"])
            found.append(Kept(path=path, step=content["step"], metric=metric))
    return sorted(found, key=lambda one: one.step)


def newest(folder: Path) -> Path | None:
    """Returns the newest sealed checkpoint, without checking its files."""
    found = kept_checkpoints(folder)
    return found[-1].path if found else None


def newest_sound(folder: Path) -> tuple[Path | None, list[str]]:
    """Returns the newest undamaged checkpoint (None if none is complete), and a sentence for each newer other.

    Rank 0 reads the files for all ranks, because hashing reads the whole checkpoint.

    Raises:
        CheckpointError: if there are complete checkpoints, but all are damaged.
    """
    path, passed_over, finished = from_first(_newest_sound(folder) if this_rank() == 0 else (None, [], False))
    if path is None and finished:
        raise CheckpointError(f"{'; '.join(passed_over)}; none is left to resume from: remove {folder} to start again")
    return path, passed_over


def _newest_sound(folder: Path) -> tuple[Path | None, list[str], bool]:
    """Returns the newest undamaged checkpoint, a sentence for each newer one, and whether one of those is complete."""
    passed_over: list[str] = []
    finished = False
    for path in sorted(_begun_checkpoints(folder), key=_step, reverse=True):
        if (sentence := damage(path)) is None:
            return path, passed_over, finished
        passed_over.append(sentence)
        finished = finished or _seal(path).is_file()
    return None, passed_over, finished


def forget(folder: Path, *, after: Path | None) -> None:
    """Removes the seals of the damaged checkpoints later than ``after``, so that none counts as best or newest."""
    for path in _begun_checkpoints(folder):
        if after is None or _step(path) > _step(after):
            _seal(path).unlink(missing_ok=True)


def damage(path: Path) -> str | None:
    if not _seal(path).is_file():
        return f"checkpoint {path} was not written to its end"
    if (content := _read(_seal(path))) is None:
        return f"checkpoint {path} cannot be judged, its seal {_seal(path).name} is damaged"
    return damage_of(path, content["files"], what="checkpoint")


def clear(folder: Path, *, keep: Sequence[Path]) -> None:
    """Removes all checkpoints except these, and partial files."""
    for path in [*_begun_checkpoints(folder), *folder.glob(f"*{PARTIAL}")]:
        if path not in keep:
            _seal(path).unlink(missing_ok=True)  # first, so that the checkpoint no longer counts
            remove(path)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _begun_checkpoints(folder: Path) -> set[Path]:
    """Returns the paths of all checkpoints in the folder, including those of which only the seal exists."""
    sealed = {path.with_suffix("") for path in folder.glob(f"*{CHECKPOINT}{SEAL}")}
    return sealed.union(folder.glob(f"*{CHECKPOINT}"))


def _step(path: Path) -> int:
    """Returns the step in a name made by ``path_of``; −1 for other names."""
    number = path.name.removeprefix("step=").removesuffix(CHECKPOINT)
    return int(number) if number.isdecimal() else -1


def _seal(path: Path) -> Path:
    return path.with_name(path.name + SEAL)


def _read(path: Path) -> dict[str, Any] | None:
    """Returns the content of a seal; None if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        step, files, metric = content["step"], content["files"], content["metric"]
        sound = isinstance(step, int) and all({"bytes", "sha256"} <= file.keys() for file in files.values())
        return content if sound and files and (metric is None or {"name", "value"} == metric.keys()) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
