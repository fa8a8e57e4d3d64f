"""What is on the disk when something says that it is: each fsync and each rename, in the order of real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments.run_folder import METRICS_FILE
from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.reader import RESULT
from experiments.stages.checkpoints import path_of, seal
from experiments.stages.stage_manifest import write_result
from experiments.system.files import write_text
from tests.unit.experiments.stages.test_stage_checkpoint import Line, fit, saving


class Disk:
    """What was brought to the disk and what was renamed, one after the other."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Path]] = []

    def synced(self, path: Path, *, after: int = -1, before: int | None = None) -> bool:
        """Whether that happened between two places of the order."""
        return ("sync", path.resolve()) in self.done[after + 1 : before]

    def named(self, path: Path) -> int:
        """The one place at which the file got its name."""
        (place,) = (place for place, done in enumerate(self.done) if done == ("name", path.resolve()))
        return place

    def assert_lasting(self, path: Path) -> int:
        """A file was on the disk before it got its name, and then the name was; the place of its naming."""
        place = self.named(path)
        (partial,) = (old for what, old in self.done[place - 1 : place] if what == "was")
        assert self.synced(partial, before=place), f"{path.name} before it is named"
        assert self.synced(path.parent, after=place), f"the name of {path.name}"
        return place


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk, fsync, replace = Disk(), os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        fsync(handle)
        disk.done.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}"))))

    def watched_replace(old: Path, new: Path) -> None:
        disk.done.append(("was", Path(old).resolve()))
        replace(old, new)
        disk.done.append(("name", Path(new).resolve()))

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    return disk


def test_a_small_file_and_a_picture(tmp_path: Path, disk: Disk) -> None:
    write_text(tmp_path / "a" / "x.json", "{}")
    disk.assert_lasting(tmp_path / "a" / "x.json")
    RunFolderLogger(folder=tmp_path).log_figure("curves", Figure(), 1)
    disk.assert_lasting(tmp_path / "figures" / "curves" / "1.png")


def test_all_of_a_checkpoint_and_the_numbers_until_then_come_before_its_seal(tmp_path: Path, disk: Disk) -> None:
    fit(Line(), saving(tmp_path / "checkpoints", every=8), logger=RunFolderLogger(folder=tmp_path))
    path = path_of(tmp_path / "checkpoints", 8)
    put, sealed = disk.named(path), disk.assert_lasting(path.with_name(path.name + ".seal"))
    assert put < sealed
    assert disk.synced(path, before=sealed)
    assert disk.synced(path.parent, after=put, before=sealed), "its name"
    assert disk.synced(tmp_path, before=sealed), "the folder's name"
    assert disk.synced(tmp_path / METRICS_FILE, before=sealed)


def test_each_shard_and_its_name_comes_before_the_seal(tmp_path: Path, disk: Disk) -> None:
    path = path_of(tmp_path / "checkpoints", 3)
    (path / "checkpoint").mkdir(parents=True)
    shards = [path / "checkpoint" / f"rank_{rank}.pt" for rank in range(2)]
    for shard in shards:
        shard.write_bytes(b"state")
    seal(path, step=3, metric=None)
    sealed = disk.assert_lasting(path.with_name(path.name + ".seal"))
    for part in (*shards, path / "checkpoint", path, path.parent, tmp_path):
        assert disk.synced(part, before=sealed), part


def test_all_that_a_stage_leaves_comes_before_its_result(tmp_path: Path, disk: Disk) -> None:
    left = [tmp_path / "policy" / "model.safetensors", tmp_path / "critic" / "critic.json", tmp_path / METRICS_FILE]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    write_result(tmp_path, {"stage": "grpo"})
    result = disk.assert_lasting(tmp_path / RESULT)
    for path in (*left, *{path.parent for path in left}):
        assert disk.synced(path, before=result), path
