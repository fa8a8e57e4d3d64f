"""``Tracker`` reads the artifacts of runs: from a database and through a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from experiments.mlflow_sync import Tracker, TrackerError
from tests.unit.experiments.mlflow_sync.server_kit import Server


def check_artifacts(tracker: Tracker, folder: Path) -> None:
    run = tracker.create_run("100% far #away", name="r", start=0.0, tags={}, parent=None)
    picture = folder / "a.png"
    picture.write_bytes(b"picture")
    tracker.log_file(run, picture, "figures/critic")
    tracker.log_table(run, "test/completions", [{"problem": "p", "status": "ok"}])
    assert tracker.artifacts.files(run) == ["figures/critic/a.png", "tables/test/completions.json"]
    assert tracker.artifacts.files(run, "figures") == ["figures/critic/a.png"]
    assert tracker.artifacts.files(run, "nothing") == []
    assert tracker.artifacts.read(run, "figures/critic/a.png") == b"picture"
    assert tracker.table(run, "test/completions") == [{"problem": "p", "status": "ok"}]
    with pytest.raises((OSError, TrackerError)):
        tracker.artifacts.read(run, "figures/critic/b.png")


def test_tracker_reads_artifacts_beside_database(tracker: Tracker, tmp_path: Path) -> None:
    check_artifacts(tracker, tmp_path)


def test_experiments_and_runs_are_read_over_all_pages(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"page {number}" for number in range(3)]
    for name in names:
        tracker.create_run(name, name="r", start=0.0, tags={"kind": "experiment"}, parent=None)
    search = tracker._client.search_experiments
    monkeypatch.setattr(tracker._client, "search_experiments", partial(search, max_results=1))
    assert set(names) <= set(tracker.experiments())
    assert {run.experiment for run in tracker.runs(names, kind="experiment")} == set(names)


@pytest.mark.slow
def test_tracker_reads_artifacts_through_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        check_artifacts(Tracker(server.address), tmp_path)
    finally:
        server.kill()
