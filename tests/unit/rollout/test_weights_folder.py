from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from contrastive_reasoning.rollout import weights_folder
from contrastive_reasoning.rollout.weights_folder import (
    ABANDONED,
    GIB,
    PREFIX,
    RESERVE,
    free_memory,
    missing_space,
    shared_folder,
)


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(weights_folder, "SHARED_MEMORY", tmp_path)
    return tmp_path


@pytest.mark.parametrize(("memory", "disk", "space"), [(3, 3, True), (2, 3, False), (3, 2, False)])
def test_weights_must_fit_into_shared_memory_and_free_memory(
    shared_memory: Path, monkeypatch: pytest.MonkeyPatch, memory: int, disk: int, space: bool
) -> None:
    monkeypatch.setattr(weights_folder, "free_memory", lambda: memory * GIB + RESERVE)
    monkeypatch.setattr(weights_folder.shutil, "disk_usage", lambda _: SimpleNamespace(free=disk * GIB))
    assert (missing_space(3 * GIB) is None) is space
    assert space or f"{shared_memory}" in (missing_space(3 * GIB) or "")


def test_there_is_no_space_without_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_folder, "SHARED_MEMORY", tmp_path / "none")
    assert missing_space(0) is not None


@pytest.mark.parametrize(("limit", "limited"), [("5000", True), ("max", False), (None, False)])
def test_limit_of_a_container_bounds_free_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, limited: bool
) -> None:
    monkeypatch.setattr(weights_folder, "CONTROL_GROUP", tmp_path)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("2000\n")
    assert (free_memory() == 3000) is limited


def test_shared_folder_is_private_and_removed_after_a_failure(shared_memory: Path) -> None:
    with pytest.raises(FileExistsError), shared_folder() as one, shared_folder() as other:  # noqa: PT012
        assert one != other
        assert one.stat().st_mode & 0o777 == 0o700
        (one / "file").touch()
        one.mkdir()
    assert [*shared_memory.iterdir()] == []


def test_folders_of_killed_processes_are_removed_after_a_day(shared_memory: Path) -> None:
    names = ("left", "recent", "another")
    left, recent, another = (shared_memory / f"{PREFIX if name != 'another' else ''}{name}" for name in names)
    for folder, age in ((left, ABANDONED + 60), (recent, ABANDONED - 600), (another, 2 * ABANDONED)):
        folder.mkdir()
        (folder / "model.safetensors").touch()
        os.utime(folder, (time.time() - age,) * 2)
    with shared_folder():
        pass
    assert {*shared_memory.iterdir()} == {recent, another}
