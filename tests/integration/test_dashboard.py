"""``make dashboard``: pages on loopback only, experiments side by side, and a login that is not stored."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import pytest

from experiments.analysis.runs import Refused
from experiments.dashboard import choose_experiments, command, pages, share_view, side_by_side
from experiments.mlflow_sync import Tracker, TrackerError
from experiments.mlflow_sync.sync import MEMORY_FILE, FolderSync
from experiments.run_folder.reader import read_json
from experiments.system.files import write_json
from tests import browser
from tests.browser import opened
from tests.unit.experiments.conftest import Outputs

LOGIN = "me:opensesame"
NAMES = ("llama_baseline", "llama_critic", "llama_oracle")
STUDY = "countdown_credit"


@pytest.mark.parametrize(
    ("arguments", "address", "expected"),
    [
        ([], "sqlite:///some.db", "http://127.0.0.1:5000"),
        (["--port", "5001"], "sqlite:///some.db", "http://127.0.0.1:5001"),
        (["--workers", "1", "--port=5002"], "sqlite:///some.db", "http://127.0.0.1:5002"),
        (["-p", "5003"], "sqlite:///some.db", "http://127.0.0.1:5003"),
        ([], "https://there:8080/", "https://there:8080"),
    ],
)
def test_pages_are_on_loopback_or_on_the_tracking_server(arguments: list[str], address: str, expected: str) -> None:
    assert pages(arguments, address) == expected
    bound = command(arguments, "sqlite:///some.db")
    assert bound == ["ui", "--host", "127.0.0.1", "--backend-store-uri", "sqlite:///some.db", *arguments]


def test_side_by_side_addresses_contain_experiment_ids() -> None:
    charts, table = side_by_side({"llama_baseline": "3", "llama_critic": "11"}, "http://127.0.0.1:5000", view="success")
    place, _, query = charts.partition("?")
    assert place == "http://127.0.0.1:5000/#/compare-experiments/s"
    shared = {"experiments": ['["3","11"]'], "viewStateShareKey": ["success"]}
    assert parse_qs(query) == {**shared, "compareRunsMode": ["CHART"]}
    assert parse_qs(table.partition("?")[2]) == shared
    _, table = side_by_side({"countdown_credit": "7"}, "http://127.0.0.1:5000", view="success")
    assert table == "http://127.0.0.1:5000/#/experiments/7/runs?viewStateShareKey=success"
    charts, table = side_by_side({"countdown_credit": "7"}, "http://127.0.0.1:5000", view=None)
    assert charts == "http://127.0.0.1:5000/#/experiments/7/runs?compareRunsMode=CHART"
    assert table == "http://127.0.0.1:5000/#/experiments/7/runs"


def test_refused_view_is_one_sentence_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: str) -> None:
        raise TrackerError("no such tag")

    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    FolderSync(Outputs(tmp_path / "kit").run("name", seed=0, final=0.4), tracker).send(live=False)
    assert share_view(tracker, ["name"])
    monkeypatch.setattr(tracker, "tag_experiment", refuse)
    capsys.readouterr()  # of MLflow, when it creates the tables
    assert not share_view(tracker, ["name"])
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert "no such tag" in output.err


def test_choose_experiments_returns_given_names_or_newest_eight() -> None:
    there = {f"name{number}": str(number) for number in range(12)}
    assert list(choose_experiments(["name3", "name1"], there)) == ["name3", "name1"]
    assert list(choose_experiments([], there)) == [f"name{number}" for number in range(8)]
    with pytest.raises(Refused, match=r"'llama_critc'.*'llama_critic'"):
        choose_experiments(["llama_critc"], {"llama_critic": "1"})


class Dashboard(NamedTuple):
    port: int
    folder: Path
    """Contains the database, artifacts and log, and the runs that were sent."""


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard started as in the Makefile, on a free port, with three experiments and a study."""
    folder = tmp_path_factory.mktemp("dashboard")
    database = f"sqlite:///{folder / 'mlflow.db'}"
    kit, tracker = Outputs(folder / "kit"), Tracker(database)
    for name in NAMES:
        FolderSync(kit.run(name, seed=0, final=0.4), tracker).send(live=False)
    for arm in ("verifier", "critic"):
        FolderSync(kit.run(STUDY, seed=len(arm), final=0.5, reward=arm), tracker).send(live=False)
    with browser.dashboard(folder, "--default-artifact-root", str(folder / "artifacts")) as port:
        yield Dashboard(port, folder)


def listening(port: int) -> set[str]:
    """Addresses on which this machine listens at a port, in the kernel's notation."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {place.split(":")[0] for _, place, _, state, *_ in lines if state == "0A" and int(place[-4:], 16) == port}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel does not tell")
def test_dashboard_listens_on_loopback_and_stores_no_login(dashboard: Dashboard) -> None:
    port, folder = dashboard
    assert listening(port) == {"0100007F"}
    run = folder / "outputs" / "runs" / "name" / "now"
    run.mkdir(parents=True)
    write_json(run / "stages.json", {})
    write_json(run / "summary.json", {})
    (run / "config.yaml").write_text("seed: 0\n")
    tracker = Tracker(f"http://{LOGIN}@127.0.0.1:{port}")
    FolderSync(run, tracker).send(live=False)
    assert [found.status for found in tracker.runs(["name"], kind="experiment")] == ["FINISHED"]
    assert list(read_json(run / MEMORY_FILE)) == [f"http://127.0.0.1:{port}"]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"opensesame" in path.read_bytes()]


@pytest.mark.slow
def test_printed_links_show_all_runs_and_study_arms_side_by_side(dashboard: Dashboard, tmp_path: Path) -> None:
    port, folder = dashboard
    output = (folder / "server.log").read_text()
    charts, table = re.findall(rf"^http://127\.0\.0\.1:{port}/#/compare\S+$", output, re.MULTILINE)
    assert re.search(r"^The runs of (\w+, ){3}\w+ side by side, charts:$", output, re.MULTILINE)
    page = opened(charts, tmp_path)
    assert "Displaying Runs from 4 Experiments" in page
    assert all(f"{name} · seed 0" in page for name in NAMES)
    assert re.search(r"Success.*Reward", page, re.DOTALL)
    assert "test/verifier/accuracy" in opened(table, tmp_path)
    there = Tracker(f"http://127.0.0.1:{port}").experiment_ids()
    charts, _ = side_by_side({STUDY: there[STUDY]}, f"http://127.0.0.1:{port}", view="success")
    page = opened(charts, tmp_path)
    assert page.count(f"{STUDY} · seed 6") == page.count(f"{STUDY} · seed 8") >= 1


@pytest.mark.slow
def test_dashboard_prints_pages_of_tracking_server(dashboard: Dashboard) -> None:
    port = dashboard.port
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    done = subprocess.run(
        [sys.executable, "-m", "experiments.dashboard"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith(f"The runs are on a server that has its own pages: http://127.0.0.1:{port}\n")
    assert f"http://127.0.0.1:{port}/#/compare-experiments/s?" in done.stdout
