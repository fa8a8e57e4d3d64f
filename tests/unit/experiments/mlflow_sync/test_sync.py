"""``FolderSync`` and ``sync``: MLflow has all data of a run folder once, however often it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import experiments as restoring
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.analysis.runs import finished_runs
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.mlflow_sync.describe import describe
from experiments.mlflow_sync.sync import MEMORY_FILE, FolderSync, sync
from experiments.run_folder.group_state import GroupState, write_state
from experiments.run_folder.mirror import start_sync, stop_sync
from experiments.run_folder.reader import read_json
from experiments.run_folder.record import write_failure
from experiments.system.files import write_json, write_text
from tests.unit.lightning_modules.grpo_kit import policy

TEST, START, VAL = (f"{split}/verifier/accuracy_sampled" for split in ("test", "start", "val"))


def send(folder: Path, tracker: Tracker, *, live: bool = False) -> None:
    FolderSync(folder, tracker).send(live=live)


def grpo_of(folder: Path) -> Path:
    return next(run.folder for run in describe(folder) if run.tags.get("stage") == "grpo")


def runs_by_kind(tracker: Tracker, name: str) -> dict[str, list[TrackedRun]]:
    return {kind: tracker.runs([name], kind=kind) for kind in ("sweep", "experiment", "stage")}


def grpo_run(tracker: Tracker, name: str) -> TrackedRun:
    (grpo,) = (run for run in tracker.runs([name], kind="stage") if run.tags["stage"] == "grpo")
    return grpo


def count_points(tracker: Tracker, run_id: str, metric: str) -> int:
    return len(tracker._client.get_metric_history(run_id, metric))


def test_sync_creates_experiment_run_with_child_for_each_stage(tracker: Tracker, outputs: Any) -> None:
    stage = grpo_of(folder := outputs.run("parent", seed=3, final=0.4))
    for step, text in ((5, "a"), (10, "b")):
        write_json(stage / "tables" / "val" / "completions" / f"{step}.json", [{"text": text}])
    write_text(stage / "figures" / "critic" / "5.png", "picture")
    send(folder, tracker)
    runs = runs_by_kind(tracker, "parent")
    (parent,) = runs["experiment"]
    assert not runs["sweep"]
    assert {run.tags["mlflow.parentRunId"] for run in runs["stage"]} == {parent.run_id}
    assert parent.metrics == {TEST: 0.4, START: 0.2, VAL: 0.4}, "the last values of its stages"
    roots = {"seed": "3", "scale": "laptop", "family": "llama", "git_sha": "abc"}
    assert parent.params == {**roots, "reward.weight": "0.2"}
    assert {"experiment": "parent", "reward": "critic", "objective": "grpo", **roots}.items() <= parent.tags.items()
    assert {run.status for run in (parent, *runs["stage"])} == {"FINISHED"}
    assert tracker.artifacts.files(parent.run_id) == ["choices.json", "config.yaml", "stages.json", "summary.json"]
    grpo = grpo_run(tracker, "parent")
    assert tracker.history(grpo.run_id, VAL) == [(0, 0.2), (10, pytest.approx(0.3)), (20, 0.4)]
    assert grpo.start == 1_700_000_000.0, "when its first metric was logged"
    assert tracker.artifacts.files(grpo.run_id, "figures") == ["figures/critic/5.png"]
    path = tracker._client.download_artifacts(grpo.run_id, "tables/val/completions.json")
    assert json.loads(Path(path).read_text()) == {"columns": ["step", "text"], "data": [[5, "a"], [10, "b"]]}
    assert json.loads(grpo.tags["mlflow.loggedArtifacts"]) == [{"path": "tables/val/completions.json", "type": "table"}]


def test_experiment_run_has_only_metrics_for_comparison(tracker: Tracker, outputs: Any) -> None:
    """The other metrics are in the runs of its stages, where a comparison reads them."""
    folder = outputs.run("few", seed=0, final=0.4)
    stages = {run.tags["stage"]: run.folder for run in describe(folder) if run.kind == "stage"}
    outputs.log(stages["grpo"], "train/reward/critic", {1: 0.5, 2: 0.75})
    outputs.log(stages["grpo"], "train/objective/kl", {1: 0.1})
    outputs.log(stages["evaluate"], "test/verdict/unparsed", {0: 0.1})
    send(folder, tracker)
    (parent,) = tracker.runs(["few"], kind="experiment")
    assert parent.metrics.keys() == {TEST, START, VAL, "train/reward/critic"}
    assert tracker.history(parent.run_id, "train/reward/critic") == [(1, 0.5), (2, 0.75)]
    (run,) = finished_runs(tracker, ["few"])
    assert run.metrics["test/verdict/unparsed"] == 0.1
    assert "train/objective/kl" not in run.metrics


@pytest.mark.parametrize("memory", ["kept", "lost", "of another version"])
def test_sending_twice_creates_no_duplicates(tracker: Tracker, outputs: Any, memory: str) -> None:
    name = f"twice {memory}"
    send(folder := outputs.run(name, seed=0, final=0.4), tracker)
    if memory == "lost":
        (folder / MEMORY_FILE).unlink()
    elif memory == "of another version":
        remembered = read_json(folder / MEMORY_FILE)
        for entry in remembered[tracker.address].values():
            entry["unknown"] = 1
        write_json(folder / MEMORY_FILE, remembered)
    send(folder, tracker)
    runs = runs_by_kind(tracker, name)
    assert [len(runs[kind]) for kind in ("sweep", "experiment", "stage")] == [0, 1, 2]
    assert count_points(tracker, grpo_run(tracker, name).run_id, VAL) == 3
    assert count_points(tracker, runs["experiment"][0].run_id, TEST) == 1


def test_run_found_again_keeps_its_parameters_and_gets_the_rest(tracker: Tracker, outputs: Any) -> None:
    """As after a lost file of what was sent, if another commit has resumed the stage meanwhile."""
    stage = grpo_of(folder := outputs.run("resumed", seed=0, final=0.4))
    (stage / "config.yaml").write_text("git_sha: first\n")
    send(folder, tracker)
    (stage / "config.yaml").write_text("git_sha: second\nthreads: 4\n")
    outputs.log(stage, VAL, {30: 0.9})
    (folder / MEMORY_FILE).unlink()
    send(folder, tracker)
    after = grpo_run(tracker, "resumed")
    assert after.params == {"git_sha": "first", "threads": "4"}
    assert (30, 0.9) in tracker.history(after.run_id, VAL)


def test_sync_sends_only_new_lines_and_keeps_later_value_of_step(
    tracker: Tracker, outputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(folder := outputs.run("increments", seed=0, final=0.4), tracker)
    outputs.log(grpo_of(folder), VAL, {10: 0.9, **(later := {step: step / 7 for step in range(30, 2530)})})
    sent: list[int] = []
    log_metrics: Callable[..., None] = tracker.log_metrics
    monkeypatch.setattr(tracker, "log_metrics", lambda i, m: (sent.extend(x.step for x in m), log_metrics(i, m)))
    send(folder, tracker)
    assert [step for step in sent if step] == [10, *later]
    history = tracker.history(grpo_run(tracker, "increments").run_id, VAL)
    assert history == [(0, 0.2), (10, 0.9), (20, 0.4), *later.items()]


def test_reused_stage_is_child_of_every_experiment_that_used_it(tracker: Tracker, outputs: Any) -> None:
    first = outputs.run("reuse", seed=0, final=0.4)
    second = outputs.run("reuse", seed=0, final=0.4, time="2026-01-02T00-00-00")
    assert [run.folder for run in describe(first)][1:] == [run.folder for run in describe(second)][1:]
    send(first, tracker)
    send(second, tracker)
    stages = tracker.runs(["reuse"], kind="stage")
    assert len({run.tags["mlflow.parentRunId"] for run in stages}) == 2
    assert [run.metrics[VAL] for run in stages if run.tags["stage"] == "grpo"] == [0.4, 0.4]


def test_sweep_run_is_parent_of_jobs_and_has_table_and_plots(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    """``hydra.sweep.dir`` can be anywhere. A plot is sent again only if its file changed."""
    (sweep := tmp_path / "mine").mkdir()
    entry = {"sweep": "mine", "overrides": "seed=0,1", "folder": str(sweep)}
    for name in (names := ["heat_map.png", "reward.temperature.png", "summary.csv", "summary.md"]):
        (sweep / name).write_text("drawn")
    for seed in range(2):
        job = outputs.run("swept", seed=seed, final=0.4)
        write_json(job / "sweep.json", entry)
        send(job, tracker)
    runs = runs_by_kind(tracker, "swept")
    (parent,) = runs["sweep"]
    assert [run.tags["mlflow.parentRunId"] for run in runs["experiment"]] == [parent.run_id] * 2
    assert (parent.status, parent.params) == ("FINISHED", {"overrides": "seed=0,1"})
    assert tracker.artifacts.files(parent.run_id) == [*names, "sweep.json"]
    place = f"artifacts/*/{parent.run_id}/artifacts"
    there = next(Path(tracker.address.removeprefix("sqlite:///")).parent.glob(place))
    (sweep / names[0]).write_text("drawn anew")
    (there / names[1]).write_text("a mark")
    write_state(sweep, GroupState(state="stopped"))
    send(job, tracker)
    assert [(there / name).read_text() for name in names[:2]] == ["drawn anew", "a mark"]
    assert [run.status for run in runs_by_kind(tracker, "swept")["sweep"]] == ["KILLED"]
    note = parent.tags["mlflow.note.content"]
    pictures = [f"![{name}](get-artifact?path={name}&run_uuid={parent.run_id})\n\n" for name in names[:2]]
    assert note == f"{''.join(pictures)}drawn", "what the run's page begins with"


def test_write_note_cuts_long_text_at_end_of_line(tracker: Tracker, outputs: Any) -> None:
    send(outputs.run("noted", seed=0, final=0.4), tracker)
    (run,) = tracker.runs(["noted"], kind="experiment")
    tracker.write_note(run.run_id, "\n".join(line := "| a row |" for _ in range(1000)), pictures=[])
    (run,) = tracker.runs(["noted"], kind="experiment")
    assert set((note := run.tags["mlflow.note.content"]).splitlines()) == {line}
    assert 4900 < len(note) <= 5000


def test_sync_sets_status_from_run_folder(tracker: Tracker, outputs: Any) -> None:
    """In a failed run, the stages before the one that failed are finished."""
    folder = outputs.run("status", seed=0, final=0.4)
    evaluate = next(run.folder for run in describe(folder) if run.tags.get("stage") == "evaluate")
    for path in (folder / "summary.json", evaluate / "result.json"):
        path.unlink()

    def after_sending(*, live: bool = False) -> tuple[str, dict[str, str]]:
        send(folder, tracker, live=live)
        stages = tracker.runs(["status"], kind="stage")
        return tracker.runs(["status"], kind="experiment")[0].status, {s.tags["stage"]: s.status for s in stages}

    assert after_sending(live=True) == ("RUNNING", {"grpo": "FINISHED", "evaluate": "RUNNING"})
    assert not tracker.runs(["status"], kind="experiment")[0].metrics, "no final numbers before the end"
    assert after_sending() == ("KILLED", {"grpo": "FINISHED", "evaluate": "KILLED"})
    write_failure(folder, ValueError("no number\nat all"))
    assert after_sending() == ("FAILED", {"grpo": "FINISHED", "evaluate": "FAILED"})
    assert "problems" not in tracker.runs(["status"], kind="experiment")[0].tags
    write_json(folder / "summary.json", {})
    write_json(evaluate / "result.json", {"problems": "arithmetic stories"})
    assert after_sending() == ("FINISHED", {"grpo": "FINISHED", "evaluate": "FINISHED"})
    assert tracker.runs(["status"], kind="experiment")[0].tags["problems"] == "arithmetic stories"


def test_deleted_run_stays_deleted_and_its_stages_are_sent(tracker: Tracker, outputs: Any) -> None:
    """This includes a sync that never saw the deleted run, such as that of a sweep's next job."""
    send(folder := outputs.run("deleted", seed=0, final=0.4), tracker)
    (experiment,), stages = (tracker.runs(["deleted"], kind=kind) for kind in ("experiment", "stage"))
    tracker._client.delete_run(experiment.run_id)
    for stage in stages:
        tracker._client.set_tag(stage.run_id, "key", f"of another run, {stage.run_id}")
    (folder / MEMORY_FILE).unlink()
    send(folder, tracker)
    keys = [run.tags["key"] for run in tracker.runs(["deleted"], kind="stage")]
    assert len([key for key in keys if not key.startswith("of another run")]) == 2
    assert tracker.runs(["deleted"], kind="experiment") == []


def test_deleted_experiment_stays_deleted_until_it_is_restored(
    tracker: Tracker, outputs: Any, capsys: pytest.CaptureFixture
) -> None:
    """The command in the message restores it. A run sent before the deletion does not count as missing."""
    old = outputs.run("gone", seed=0, final=0.4)
    send(old, tracker)
    tracker._client.delete_experiment(tracker.experiment_ids()["gone"])
    assert sync([old], lambda: tracker)
    new = outputs.run("gone", seed=1, final=0.5)
    capsys.readouterr()
    assert not sync([new], lambda: tracker)
    output = capsys.readouterr().out
    assert output.count("MLflow's experiment 'gone' was deleted and accepts no runs; to restore it: ") == 1
    assert "gone" not in tracker.experiments()
    command = output.partition("to restore it: ")[2].partition(")")[0].split()
    assert command[:3] == [f"MLFLOW_TRACKING_URI={tracker.address}", "mlflow", "experiments"]
    restoring.commands.main(command[3:], standalone_mode=False)
    assert sync([old, new], lambda: tracker)
    assert [run.tags["seed"] for run in tracker.runs(["gone"], kind="experiment")] == ["0", "1"]


def test_sync_sends_every_run_in_folder_despite_damaged_file(
    tracker: Tracker, outputs: Any, capsys: pytest.CaptureFixture
) -> None:
    folders = [outputs.run("synced", seed=seed, final=0.4) for seed in range(2)]
    assert sync([outputs.root / "runs"], lambda: tracker)
    assert len(tracker.runs(["synced"], kind="experiment")) == 2
    assert "2 of 2 run folders are in MLflow" in capsys.readouterr().out
    assert sync([outputs.root / "stages"], lambda: tracker)
    assert "there is nothing to send" in capsys.readouterr().out
    (folders[0] / "stages.json").write_text("{")
    assert not sync([outputs.root], lambda: tracker)
    output = capsys.readouterr().out
    assert "not all was sent (JSONDecodeError" in output
    assert "1 of 2 run folders are in MLflow" in output


@pytest.mark.parametrize("name", ["it's", "100%20 a#b;c 名前"])
def test_experiment_of_any_name_is_found_again(tracker: Tracker, outputs: Any, name: str) -> None:
    """The run of its sweep is found again as well."""
    folder = outputs.run(name, seed=0, final=0.4, sweep=f"{name} swept")
    outputs.log(grpo_of(folder), "val/точность 😀", {0: 0.25, 1: 0.5})
    for _ in range(2):
        send(folder, tracker)
        (folder / MEMORY_FILE).unlink()
    assert [len(runs) for runs in runs_by_kind(tracker, name).values()] == [1, 1, 2]
    grpo = grpo_run(tracker, name)
    assert tracker.history(grpo.run_id, "val/точность 😀") == [(0, 0.25), (1, 0.5)]
    assert "config.yaml" in tracker.artifacts.files(grpo.run_id)


def run_with_megabytes(outputs: Any, name: str, limit: float) -> Path:
    folder = outputs.run(name, seed=0, final=0.4)
    with (folder / "config.yaml").open("a") as config:
        config.write(f"logger:\n  model_megabytes: {limit}\n")
    return folder


def test_sent_policy_loads_in_transformers(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    folder = run_with_megabytes(outputs, "model", 100.0)
    policy().save(grpo_of(folder) / "policy")
    send(folder, tracker)
    run = grpo_run(tracker, "model")
    assert run.tags["model"] == "policy/"
    fetched = tracker._client.download_artifacts(run.run_id, "policy", str(tmp_path))
    ours, model = policy(), AutoModelForCausalLM.from_pretrained(fetched)
    for name, weight in ours.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name
    assert AutoTokenizer.from_pretrained(fetched)("21+16=37")["input_ids"] == ours.tokenizer("21+16=37")["input_ids"]


@pytest.mark.parametrize("state", ["large", "reused", "unfinished"])
def test_policy_is_not_sent_if_large_reused_or_unfinished(tracker: Tracker, outputs: Any, state: str) -> None:
    name = f"model_{state}"
    folder = run_with_megabytes(outputs, name, 1.0)
    (grpo_of(folder) / "policy").mkdir()
    (grpo_of(folder) / "policy" / "model.safetensors").write_bytes(bytes(1_100_000 if state == "large" else 100))
    if state == "unfinished":
        (grpo_of(folder) / "result.json").unlink()
    entries = read_json(folder / "stages.json")
    entries["grpo"]["reused"] = state == "reused"
    write_json(folder / "stages.json", entries)
    send(folder, tracker)
    run = grpo_run(tracker, name)
    large = rf"1\.1 MB are more than logger\.model_megabytes=1: {grpo_of(folder)}/policy"
    assert re.fullmatch(large if state == "large" else "", run.tags.get("model", ""))
    assert not tracker.artifacts.files(run.run_id, "policy")


def test_stop_sync_sends_everything_before_process_ends(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("followed", seed=0, final=0.4)
    assert stop_sync(start_sync(folder), timeout=120), (folder / "mirror.log").read_text()
    (run,) = tracker.runs(["followed"], kind="experiment")
    assert (run.status, run.metrics[TEST]) == ("FINISHED", 0.4)
