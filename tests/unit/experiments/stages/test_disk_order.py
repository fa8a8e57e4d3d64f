"""Files are synced before a seal or result declares them complete: the recorded order of real fsyncs and renames."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.reader import METRICS_FILE, RESULT
from experiments.stages.checkpoints import path_of, seal
from experiments.stages.stage_manifest import write_result
from experiments.system.files import write_text
from tests.unit.experiments.stages.test_stage_checkpoint import Line, fit, saving


class Disk:
    """Records syncs and renames in their order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Path]] = []

    def synced(self, path: Path, *, after: int = -1, before: int | None = None) -> bool:
        """Whether the path was synced between two positions of the record."""
        return ("sync", path.resolve()) in self.done[after + 1 : before]

    def named(self, path: Path) -> int:
        """Returns the position of the only rename to this path."""
        (place,) = (place for place, done in enumerate(self.done) if done == ("name", path.resolve()))
        return place

    def assert_lasting(self, path: Path) -> int:
        """Asserts that a file is synced before its rename and its folder afterwards; returns the rename's position."""
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


def test_text_file_and_figure_are_synced_before_and_after_renaming(tmp_path: Path, disk: Disk) -> None:
    write_text(tmp_path / "a" / "x.json", "{}")
    disk.assert_lasting(tmp_path / "a" / "x.json")
    RunFolderLogger(folder=tmp_path).log_figure("curves", Figure(), 1)
    disk.assert_lasting(tmp_path / "figures" / "curves" / "1.png")


def test_seal_is_written_after_checkpoint_and_metrics_are_synced(tmp_path: Path, disk: Disk) -> None:
    fit(Line(), saving(tmp_path / "checkpoints", every=8), logger=RunFolderLogger(folder=tmp_path))
    path = path_of(tmp_path / "checkpoints", 8)
    renamed, sealed = disk.named(path), disk.assert_lasting(path.with_name(path.name + ".seal"))
    assert renamed < sealed
    assert disk.synced(path, before=sealed)
    assert disk.synced(path.parent, after=renamed, before=sealed), "its name"
    assert disk.synced(tmp_path, before=sealed), "the folder's name"
    assert disk.synced(tmp_path / METRICS_FILE, before=sealed)


def test_seal_is_written_after_every_shard_is_synced(tmp_path: Path, disk: Disk) -> None:
    path = path_of(tmp_path / "checkpoints", 3)
    (path / "checkpoint").mkdir(parents=True)
    shards = [path / "checkpoint" / f"rank_{rank}.pt" for rank in range(2)]
    for shard in shards:
        shard.write_bytes(b"state")
    seal(path, step=3, metric=None)
    sealed = disk.assert_lasting(path.with_name(path.name + ".seal"))
    for part in (*shards, path / "checkpoint", path, path.parent, tmp_path):
        assert disk.synced(part, before=sealed), part


def test_result_is_written_after_all_stage_files_are_synced(tmp_path: Path, disk: Disk) -> None:
    left = [tmp_path / "policy" / "model.safetensors", tmp_path / "critic" / "critic.json", tmp_path / METRICS_FILE]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    write_result(tmp_path, {"stage": "grpo"})
    result = disk.assert_lasting(tmp_path / RESULT)
    for path in (*left, *{path.parent for path in left}):
        assert disk.synced(path, before=result), path
