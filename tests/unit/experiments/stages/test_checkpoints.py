"""Which checkpoint a run resumes from, with real files: truncated, altered, removed or incomplete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.distributed import barrier, this_rank
from experiments.stages import checkpoints
from experiments.stages.checkpoints import (
    CheckpointError,
    Metric,
    clear,
    damage,
    forget,
    kept_checkpoints,
    newest_sound,
    path_of,
    seal,
)
from tests.two_ranks import on_ranks


def write_checkpoint(folder: Path, step: int, metric: Metric | None = None) -> Path:
    path = path_of(folder, step)
    path.write_bytes(b"weights" * 100)
    seal(path, step=step, metric=metric)
    return path


def write_shards(folder: Path, step: int) -> Path:
    path = path_of(folder, step)
    (path / "checkpoint").mkdir(parents=True)
    for rank in range(2):
        (path / "checkpoint" / f"rank_{rank}.pt").write_bytes(bytes([rank]) * 50)
    seal(path, step=step, metric=None)
    return path


def flip(path: Path, place: int = 7) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


def steps(folder: Path) -> list[int]:
    return [one.step for one in kept_checkpoints(folder)]


def seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.seal")


def newest_sound_and_reads(folder: Path) -> list[Any]:
    """Returns what this rank finds, or the error message, and how many checkpoints it read; again after damage."""
    read: list[Path] = []
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "damage", lambda path: read.append(path) or damage(path))
        for harm in (lambda path: None, flip):
            if this_rank() == 0:
                harm(path_of(folder, 3))
            barrier()
            try:
                found += [str(newest_sound(folder)[0]), len(read)]
            except CheckpointError as error:
                found += [str(error), len(read)]
    return found


def test_newest_sound_reads_checkpoint_on_rank_0_only(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 3)
    first, second = on_ranks(newest_sound_and_reads, tmp_path, tmp_path)
    assert first[::2] == second[::2] == [str(path), first[2]]
    assert (first[1::2], second[1::2]) == ([1, 2], [0, 0])
    assert "none is left to resume from" in second[2]


def test_newest_sound_returns_numerically_highest_step(tmp_path: Path) -> None:
    assert newest_sound(tmp_path) == newest_sound(tmp_path / "none") == (None, [])
    for step in (100, 9, 20, 1_200_000, 900_000):
        write_checkpoint(tmp_path, step, Metric(name="val/loss", value=0.25) if step == 9 else None)
    assert newest_sound(tmp_path) == (path_of(tmp_path, 1_200_000), [])
    assert steps(tmp_path) == [9, 20, 100, 900_000, 1_200_000]
    assert [one.metric for one in kept_checkpoints(tmp_path)[:2]] == [Metric(name="val/loss", value=0.25), None]


BROKEN_SEALS = ["", "{", "[]", '{"step": 1}', '{"step": 1, "files": {}, "metric": null}']


@pytest.mark.parametrize(
    ("harm", "reason", "sealed"),
    [
        (flip, "sha256", True),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "699 bytes, not 700", True),
        (Path.unlink, "missing", False),
        (lambda path: seal_of(path).unlink(), "not written to its end", False),
        *((lambda path, broken=broken: seal_of(path).write_text(broken), ".seal", False) for broken in BROKEN_SEALS),
    ],
)
def test_newest_sound_skips_damaged_checkpoint_and_describes_damage(
    tmp_path: Path, harm: Callable[[Path], object], reason: str, sealed: bool
) -> None:
    first, second = write_checkpoint(tmp_path, 1), write_checkpoint(tmp_path, 2)
    harm(second)
    found, (sentence,) = newest_sound(tmp_path)
    assert found == first
    assert str(second) in sentence
    assert reason in sentence
    assert steps(tmp_path) == ([1, 2] if sealed else [1])


def test_forget_removes_seals_of_damaged_newer_checkpoints(tmp_path: Path) -> None:
    paths = [write_checkpoint(tmp_path, step) for step in (4, 5, 6)]
    for path in paths[1:]:
        flip(path)
    last, passed_over = newest_sound(tmp_path)
    assert (last, len(passed_over)) == (paths[0], 2)
    forget(tmp_path, after=last)
    assert steps(tmp_path) == [4]
    assert newest_sound(tmp_path)[0] == last


@pytest.mark.parametrize("write", [write_checkpoint, write_shards])
def test_newest_sound_raises_if_all_sealed_checkpoints_are_missing(
    write: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    for step in (1, 2):
        path = write(tmp_path, step)
        path.rename(tmp_path / f"elsewhere {step}")
    with pytest.raises(CheckpointError, match=rf"step=000002.*step=000001.*{tmp_path}"):
        newest_sound(tmp_path)
    clear(tmp_path, keep=[])
    assert newest_sound(tmp_path) == (None, [])


def test_newest_sound_skips_unsealed_first_checkpoint(tmp_path: Path) -> None:
    path_of(tmp_path, 5).write_bytes(b"half")
    found, (sentence,) = newest_sound(tmp_path)
    assert found is None
    assert str(path_of(tmp_path, 5)) in sentence


def test_damage_names_altered_or_missing_shard(tmp_path: Path) -> None:
    path = write_shards(tmp_path, 3)
    assert damage(path) is None
    flip(path / "checkpoint" / "rank_1.pt")
    assert "rank_1.pt" in str(damage(path))
    (path / "checkpoint" / "rank_0.pt").unlink()
    assert "rank_0.pt" in str(damage(path))


def test_clear_removes_other_checkpoints_seals_and_partial_files(tmp_path: Path) -> None:
    keep_path = write_checkpoint(tmp_path, 2)
    write_checkpoint(tmp_path, 1)
    write_shards(tmp_path, 3)
    path_of(tmp_path, 4).with_suffix(".new").write_bytes(b"half")
    clear(tmp_path, keep=[keep_path])
    assert sorted(path.name for path in tmp_path.iterdir()) == [keep_path.name, seal_of(keep_path).name]
