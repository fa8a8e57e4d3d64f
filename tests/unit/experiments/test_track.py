from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.track import Tracker, TrackerError
from experiments.tracking.carry import Carrier, sync
from experiments.tracking.run_tree import runs_of
from experiments.tracking.sent import MEMORY_FILE
from experiments.tracking.sqlite_file import make_whole
from experiments.tracking.tracked_run import TrackedRun
from tests.ports import free_port

TEST, START, VAL = (f"{split}/verifier/accuracy_sampled" for split in ("test", "start", "val"))


def carry(folder: Path, tracker: Tracker, *, live: bool = False) -> None:
    Carrier(folder, tracker).carry(live=live)


def everything(tracker: Tracker, name: str) -> dict[str, list[TrackedRun]]:
    return {kind: tracker.runs([name], kind=kind) for kind in ("sweep", "experiment", "stage")}


def points(tracker: Tracker, run_id: str, metric: str) -> int:
    return len(tracker._client.get_metric_history(run_id, metric))


def artifacts(tracker: Tracker, run_id: str, folder: str = "") -> list[str]:
    return sorted(file.path for file in tracker._client.list_artifacts(run_id, folder or None))


def test_an_experiment_is_a_parent_with_a_child_for_each_stage(tracker: Tracker, outputs: Any) -> None:
    carry(outputs.run("parent", seed=3, final=0.4), tracker)
    runs = everything(tracker, "parent")
    (parent,) = runs["experiment"]
    assert not runs["sweep"]
    assert {run.tags["stage"]: run.tags["mlflow.parentRunId"] for run in runs["stage"]} == {
        "grpo": parent.run_id,
        "evaluate": parent.run_id,
    }
    assert parent.metrics == {TEST: 0.4, START: 0.2, VAL: 0.4}, "the last values of its stages"
    assert parent.params == {
        "seed": "3",
        "scale": "laptop",
        "family": "llama",
        "git_sha": "abc",
        "reward.weight": "0.2",
    }
    tags = {name: parent.tags[name] for name in ("experiment", "reward", "objective", "seed", "scale", "git_sha")}
    assert tags == {
        "experiment": "parent",
        "reward": "critic",
        "objective": "grpo",
        "seed": "3",
        "scale": "laptop",
        "git_sha": "abc",
    }
    assert {run.status for run in (parent, *runs["stage"])} == {"FINISHED"}
    assert artifacts(tracker, parent.run_id) == ["choices.json", "config.yaml", "stages.json", "summary.json"]
    (grpo,) = (run for run in runs["stage"] if run.tags["stage"] == "grpo")
    assert tracker.history(grpo.run_id, VAL) == [(0, 0.2), (10, pytest.approx(0.3)), (20, 0.4)]
    assert grpo.start == 1_700_000_000.0, "when its first metric was logged"


@pytest.mark.parametrize("memory", ["kept", "lost"])
def test_sending_twice_leaves_nothing_twice(tracker: Tracker, outputs: Any, memory: str) -> None:
    name = f"twice_{memory}"
    folder = outputs.run(name, seed=0, final=0.4)
    carry(folder, tracker)
    if memory == "lost":
        (folder / MEMORY_FILE).unlink()
    carry(folder, tracker)
    runs = everything(tracker, name)
    assert [len(runs[kind]) for kind in ("sweep", "experiment", "stage")] == [0, 1, 2]
    (grpo,) = (run for run in runs["stage"] if run.tags["stage"] == "grpo")
    assert points(tracker, grpo.run_id, VAL) == 3
    assert points(tracker, runs["experiment"][0].run_id, TEST) == 1


def test_only_new_lines_are_sent(tracker: Tracker, outputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = outputs.run("increments", seed=0, final=0.4)
    carry(folder, tracker)
    stage = next(run.folder for run in runs_of(folder) if run.tags.get("stage") == "grpo")
    outputs.log(stage, VAL, {30: 0.5, 40: 0.6})
    sent: list[int] = []
    log_metrics: Callable[..., None] = tracker.log_metrics
    monkeypatch.setattr(tracker, "log_metrics", lambda i, m: (sent.extend(x.step for x in m), log_metrics(i, m)))
    carry(folder, tracker, live=False)
    assert [step for step in sent if step] == [30, 40]


def test_more_metrics_than_a_request_may_hold(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("many", seed=0, final=0.4)
    stage = next(run.folder for run in runs_of(folder) if run.tags.get("stage") == "grpo")
    outputs.log(stage, "train/long", {step: step / 7 for step in range(2500)})
    carry(folder, tracker)
    (grpo,) = (run for run in tracker.runs(["many"], kind="stage") if run.tags["stage"] == "grpo")
    assert tracker.history(grpo.run_id, "train/long") == [(step, step / 7) for step in range(2500)]


def test_after_a_resumption_the_history_has_the_later_value(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("resumed", seed=0, final=0.4)
    carry(folder, tracker)
    stage = next(run.folder for run in runs_of(folder) if run.tags.get("stage") == "grpo")
    line = json.dumps({"step": 10, "name": VAL, "value": 0.9, "time": 1_800_000_000.0})
    with (stage / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    carry(folder, tracker)
    (grpo,) = (run for run in tracker.runs(["resumed"], kind="stage") if run.tags["stage"] == "grpo")
    assert tracker.history(grpo.run_id, VAL) == [(0, 0.2), (10, 0.9), (20, 0.4)]


def test_figures_and_tables_are_artifacts(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("pictures", seed=0, final=0.4)
    stage = next(run.folder for run in runs_of(folder) if run.tags.get("stage") == "grpo")
    for step, text in ((5, "a"), (10, "b")):
        table = stage / "tables" / "val" / "completions" / f"{step}.json"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(json.dumps([{"text": text}]))
    (stage / "figures" / "critic").mkdir(parents=True)
    (stage / "figures" / "critic" / "5.png").write_bytes(b"\x89PNG")
    carry(folder, tracker)
    (grpo,) = (run for run in tracker.runs(["pictures"], kind="stage") if run.tags["stage"] == "grpo")
    assert artifacts(tracker, grpo.run_id, "figures/critic") == ["figures/critic/5.png"]
    path = tracker._client.download_artifacts(grpo.run_id, "tables/val/completions.json")
    assert json.loads(Path(path).read_text()) == {"columns": ["step", "text"], "data": [[5, "a"], [10, "b"]]}
    assert json.loads(grpo.tags["mlflow.loggedArtifacts"]) == [{"path": "tables/val/completions.json", "type": "table"}]


def test_a_reused_stage_is_a_child_of_every_experiment_that_used_it(tracker: Tracker, outputs: Any) -> None:
    first = outputs.run("reuse", seed=0, final=0.4)
    second = outputs.run("reuse", seed=0, final=0.4, time="2026-01-02T00-00-00")
    assert [run.folder for run in runs_of(first)][1:] == [run.folder for run in runs_of(second)][1:]
    carry(first, tracker)
    carry(second, tracker)
    stages = tracker.runs(["reuse"], kind="stage")
    assert len({run.tags["mlflow.parentRunId"] for run in stages}) == 2
    assert [run.metrics[VAL] for run in stages if run.tags["stage"] == "grpo"] == [0.4, 0.4]


def test_the_jobs_of_a_sweep_hang_below_one_parent(tracker: Tracker, outputs: Any) -> None:
    for seed in range(4):
        carry(outputs.run("swept", seed=seed, final=0.4, sweep="2026-01-01"), tracker)
    runs = everything(tracker, "swept")
    (parent,) = runs["sweep"]
    assert {run.tags["mlflow.parentRunId"] for run in runs["experiment"]} == {parent.run_id}
    assert len(runs["experiment"]) == 4
    assert parent.status == "FINISHED"
    assert parent.params == {"overrides": "seed=0,1"}


def test_status_follows_the_folder(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("status", seed=0, final=0.4)
    (folder / "summary.json").unlink()

    def status() -> str:
        return tracker.runs(["status"], kind="experiment")[0].status

    carry(folder, tracker, live=True)
    assert status() == "RUNNING"
    assert not tracker.runs(["status"], kind="experiment")[0].metrics, "no final numbers before the end"
    carry(folder, tracker, live=False)
    assert status() == "KILLED"
    (folder / "summary.json").write_text("{}")
    carry(folder, tracker, live=False)
    assert status() == "FINISHED"


def test_what_a_person_deleted_stays_deleted(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("deleted", seed=0, final=0.4)
    carry(folder, tracker)
    (grpo,) = (run for run in tracker.runs(["deleted"], kind="stage") if run.tags["stage"] == "grpo")
    tracker._client.delete_run(grpo.run_id)
    carry(folder, tracker)
    assert [run.tags["stage"] for run in tracker.runs(["deleted"], kind="stage")] == ["evaluate"]


def test_a_deleted_experiment_stays_deleted_and_a_new_run_says_how_to_restore_it(
    outputs: Any, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """By the very command that it is told by; what was sent before is missed by nobody."""
    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    old = outputs.run("gone", seed=0, final=0.4)
    carry(old, tracker)
    tracker._client.delete_experiment(tracker.experiment_ids()["gone"])
    assert sync([old], lambda: tracker)
    new = outputs.run("gone", seed=1, final=0.5)
    capsys.readouterr()
    assert not sync([new], lambda: tracker)
    told = capsys.readouterr().out
    assert told.count("MLflow's experiment 'gone' was deleted, and takes no run until: ") == 1
    assert "gone" not in tracker.experiments()
    variable, program, *words = told.partition(" until: ")[2].partition(")")[0].split()
    assert (variable, program) == (f"MLFLOW_TRACKING_URI={tracker.address}", "mlflow")
    environment = os.environ | dict([variable.split("=", 1)])
    subprocess.run([sys.executable, "-m", "mlflow", *words], env=environment, check=True)
    assert sync([old, new], lambda: tracker)
    assert [run.tags["seed"] for run in tracker.runs(["gone"], kind="experiment")] == ["0", "1"]


def test_what_lies_below_a_deleted_run_is_sent_all_the_same(tracker: Tracker, outputs: Any) -> None:
    """Also by a mirror that never saw the deleted one, as that of a sweep's next job."""
    folder = outputs.run("orphans", seed=0, final=0.4)
    carry(folder, tracker)
    for kind in ("stage", "experiment"):
        for run in tracker.runs(["orphans"], kind=kind):
            if kind == "experiment":
                tracker._client.delete_run(run.run_id)
            else:
                tracker._client.set_tag(run.run_id, "key", f"of another run, {run.run_id}")
    (folder / "mirror.json").unlink()
    carry(folder, tracker)
    keys = [run.tags["key"] for run in tracker.runs(["orphans"], kind="stage")]
    assert len([key for key in keys if not key.startswith("of another run")]) == 2


def test_sync_finds_every_run_below_a_folder(tracker: Tracker, outputs: Any, capsys: pytest.CaptureFixture) -> None:
    for seed in range(2):
        outputs.run("synced", seed=seed, final=0.4)
    assert sync([outputs.root / "runs"], lambda: tracker)
    assert len(tracker.runs(["synced"], kind="experiment")) == 2
    assert "2 of 2 run folders are in MLflow" in capsys.readouterr().out
    assert sync([outputs.root / "stages"], lambda: tracker)
    assert "there is nothing to send" in capsys.readouterr().out


def test_a_folder_with_a_damaged_file_does_not_stop_the_others(
    tracker: Tracker, outputs: Any, capsys: pytest.CaptureFixture
) -> None:
    (outputs.run("damaged", seed=0, final=0.4) / "stages.json").write_text("{")
    outputs.run("damaged", seed=1, final=0.4)
    assert not sync([outputs.root], lambda: tracker)
    said = capsys.readouterr().out
    assert "not all was sent (JSONDecodeError" in said
    assert "1 of 2 run folders are in MLflow" in said


def test_a_moved_folder_finds_its_stages(outputs: Any, tmp_path: Path) -> None:
    folder = outputs.run("moved", seed=0, final=0.4)
    entries = json.loads((folder / "stages.json").read_text())
    for entry in entries.values():
        entry["folder"] = str(Path("outputs") / Path(entry["folder"]).relative_to(outputs.root))
    (folder / "stages.json").write_text(json.dumps(entries))
    outputs.root.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rename(tmp_path / "outputs")
    assert all(run.folder.exists() for run in runs_of(tmp_path / "outputs" / "runs" / "moved" / folder.name))


def test_an_address_of_no_kind_and_a_server_that_is_not_there_are_said() -> None:
    with pytest.raises(TrackerError, match="MLFLOW_TRACKING_URI=nonsense:/x is no address that MLflow knows"):
        Tracker("nonsense:/x")
    with pytest.raises(TrackerError, match=r"MLFLOW_TRACKING_URI=nonsense://x is no address"):
        Tracker("nonsense://me:opensesame@x")
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(TrackerError, match=f"MLflow at {address} does not answer"):
        Tracker(address).experiments()


def test_two_processes_may_make_the_database_at_once(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    code = "from experiments.track import connect; connect().experiments()"
    environment = os.environ | {"MLFLOW_TRACKING_URI": address}
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]


def has_begun(folder: Path) -> bool:
    """Whether some table is being made; a journal may be gone before it is looked at."""
    with contextlib.suppress(FileNotFoundError):
        return any(path.stat().st_size for path in folder.glob("mlflow.db*"))
    return False


def test_a_link_to_a_database_that_is_not_there_yet_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").symlink_to(tmp_path / "big" / "real.db")
    assert Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}").experiments() == []
    assert (tmp_path / "mlflow.db").is_symlink()
    assert [path.name for path in (tmp_path / "big").iterdir()] == ["real.db"]


def test_an_empty_file_is_no_database_yet(tmp_path: Path) -> None:
    made: list[str] = []
    (tmp_path / "mlflow.db").touch()
    make_whole(f"sqlite:///{tmp_path / 'mlflow.db'}", lambda at: made.append(at) or Path(at[10:]).write_text("tables"))
    assert made == [f"sqlite:///{tmp_path / 'mlflow.db.unfinished'}"]
    assert (tmp_path / "mlflow.db").read_text() == "tables"
    make_whole(f"sqlite:///{tmp_path / 'mlflow.db'}", made.append)
    assert len(made) == 1


def test_one_killed_while_it_makes_the_database_leaves_none_that_cannot_be_opened(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{database}"}
    maker = subprocess.Popen(
        [sys.executable, "-c", "from experiments.track import connect; connect()"], env=environment
    )
    while not has_begun(tmp_path):
        assert maker.poll() is None
        time.sleep(0.01)
    maker.kill()
    assert maker.wait() == -signal.SIGKILL
    assert [path.name for path in tmp_path.glob("mlflow.db*")] != []
    assert not database.exists()
    assert Tracker(f"sqlite:///{database}").experiments() == []
    assert [path.name for path in tmp_path.glob("mlflow.db*")] == ["mlflow.db"]
