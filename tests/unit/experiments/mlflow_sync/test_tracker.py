"""Reading runs back from MLflow: their files, also of a database that was copied, and through a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments.mlflow_sync import Tracker
from tests.unit.experiments.mlflow_sync.server_kit import Server


def test_files_are_found_beside_a_database_that_was_copied(tmp_path: Path) -> None:
    made, copied = tmp_path / "made", tmp_path / "copied"
    tracker = Tracker(f"sqlite:///{made / 'mlflow.db'}")
    run = tracker.create_run("100% far #away", name="r", start=0.0, tags={}, parent=None)
    picture = tmp_path / "a.png"
    picture.write_bytes(b"picture")
    tracker.log_file(run, picture, "figures/critic")
    tracker.log_table(run, "test/completions", [{"problem": "p", "status": "ok"}])
    shutil.copytree(made, copied)
    shutil.rmtree(made)
    there = Tracker(f"sqlite:///{copied / 'mlflow.db'}")
    assert there.artifacts.files(run) == ["figures/critic/a.png", "tables/test/completions.json"]
    assert there.artifacts.files(run, "figures") == ["figures/critic/a.png"]
    assert there.artifacts.files(run, "nothing") == []
    assert there.artifacts.read(run, "figures/critic/a.png") == b"picture"
    assert there.table(run, "test/completions") == [{"problem": "p", "status": "ok"}]
    with pytest.raises(FileNotFoundError):
        there.artifacts.read(run, "figures/critic/b.png")


@pytest.mark.slow
def test_files_of_a_server_are_read_through_it(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        tracker = Tracker(server.address)
        run = tracker.create_run("served", name="r", start=0.0, tags={}, parent=None)
        tracker.log_table(run, "test/completions", [{"problem": "p", "status": "ok"}])
        assert tracker.artifacts.files(run) == ["tables/test/completions.json"]
        assert tracker.artifacts.files(run, "figures") == []
        assert tracker.table(run, "test/completions") == [{"problem": "p", "status": "ok"}]
    finally:
        server.kill()
