"""``Tracker`` reads the artifacts of runs: from a database, also a copied one, and through a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments.mlflow_sync import Tracker
from tests.unit.experiments.mlflow_sync.server_kit import Server


def test_tracker_reads_artifacts_beside_copied_database(tmp_path: Path) -> None:
    original, copied = tmp_path / "made", tmp_path / "copied"
    tracker = Tracker(f"sqlite:///{original / 'mlflow.db'}")
    run = tracker.create_run("100% far #away", name="r", start=0.0, tags={}, parent=None)
    picture = tmp_path / "a.png"
    picture.write_bytes(b"picture")
    tracker.log_file(run, picture, "figures/critic")
    tracker.log_table(run, "test/completions", [{"problem": "p", "status": "ok"}])
    shutil.copytree(original, copied)
    shutil.rmtree(original)
    reader = Tracker(f"sqlite:///{copied / 'mlflow.db'}")
    assert reader.artifacts.files(run) == ["figures/critic/a.png", "tables/test/completions.json"]
    assert reader.artifacts.files(run, "figures") == ["figures/critic/a.png"]
    assert reader.artifacts.files(run, "nothing") == []
    assert reader.artifacts.read(run, "figures/critic/a.png") == b"picture"
    assert reader.table(run, "test/completions") == [{"problem": "p", "status": "ok"}]
    with pytest.raises(FileNotFoundError):
        reader.artifacts.read(run, "figures/critic/b.png")


@pytest.mark.slow
def test_tracker_reads_artifacts_through_server(tmp_path: Path) -> None:
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
