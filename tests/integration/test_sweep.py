"""Sweeps by the command line: a job that fails, one that is done already, several at once, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hydra import compose
from mlflow.tracking import MlflowClient

from contrastive_reasoning.policies.load import resolve
from experiments.schema import composing
from experiments.stages.experiment import run_experiment

EMBEDDED = "embedded:llama_countdown_unaimed"
EVALUATED = ["experiment=llama_baseline", "debug=fast", "stages=[evaluate]"]
GRPO = ["experiment=clipo_laptop", "debug=fast", "budget.grpo.steps=12", "logger.mirror=false"]
LONGEST = 600.0


class Ended(NamedTuple):
    """Exit code and output of a command."""

    code: int
    said: str
    errors: str


def command(*overrides: str) -> list[str]:
    return [sys.executable, "-m", "experiments.run", *overrides]


def run(*overrides: str) -> Ended:
    done = subprocess.run(command(*overrides), capture_output=True, text=True, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def jobs_of(output: Path) -> list[dict[str, Any]]:
    """The jobs of the newest sweep, by number."""
    newest = max(output.glob("sweeps/*"))
    return sorted((json.loads(path.read_text()) for path in newest.glob("*/job.json")), key=lambda job: job["number"])


def statuses(database: str, name: str) -> dict[str, set[str]]:
    """Kind → status of the runs of an experiment in MLflow."""
    client = MlflowClient(tracking_uri=database)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    found: dict[str, set[str]] = {}
    for one in client.search_runs([experiment.experiment_id]):
        found.setdefault(one.data.tags["kind"], set()).add(one.info.status)
    return found


@pytest.mark.whole
def test_failed_job_does_not_stop_others_and_finished_job_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three policies: an empty folder, the one that was evaluated before, and a copy of it in another folder."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database := f"sqlite:///{tmp_path / 'mlflow.db'}")
    output, copy, empty = tmp_path / "outputs", tmp_path / "copy", tmp_path / "empty"
    shutil.copytree(resolve(EMBEDDED), copy)
    empty.mkdir()
    shared = [*EVALUATED, f"output_dir={output}", "logger.mirror=false"]
    with composing():
        before = run_experiment(compose("config", shared))
    to_mlflow = ["logger.mirror=true", "logger.patience=120"]
    swept = run("-m", *shared, *to_mlflow, f"policy.pretrained={empty},{EMBEDDED},{copy}")
    assert swept.code == 1, swept.said + swept.errors
    failed, done_already, done = jobs_of(output)
    assert [failed["state"], done_already["state"], done["state"]] == ["failed", "done already", "done"]
    assert failed["cause"] == f"policy.pretrained={empty}: no model there (config.json is missing)"
    assert f"job 1 (policy.pretrained={EMBEDDED}): done already in {before}" in swept.said
    assert not list(output.glob("sweeps/*/1/log.txt")), "no process was started for it"
    assert len(list(output.glob("runs/*/*/summary.json"))) == 2
    *lines, last = swept.said.splitlines()
    assert "3 jobs: 1 done, 1 done already, 1 failed" in lines
    assert last.startswith(f"job 0 (policy.pretrained={empty}) FAILED: {failed['cause']}; log ")
    table = next(output.glob("sweeps/*/summary.csv")).read_text().splitlines()
    assert {line.partition(",")[0] for line in table[1:]} == {EMBEDDED, str(copy)}, "both have results in the table"
    assert statuses(database, "llama_baseline") == {
        "sweep": {"FAILED"},
        "experiment": {"FINISHED"},
        "stage": {"FINISHED"},
    }


def test_sweeper_that_minimises_success_is_rejected(tmp_path: Path) -> None:
    """This is Optuna's default direction. No job begins."""
    where = [f"output_dir={tmp_path}", "seed=0,1"]
    done = run("-m", *EVALUATED, *where, "+hydra.sweeper.direction=minimize")
    assert (done.code, done.said) == (2, "")
    assert done.errors == (
        "hydra.sweeper.direction=minimize: jobs return success, which a sweep must maximize: "
        "use hydra.sweeper.direction=maximize\n"
    )
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_ctrl_c_stops_all_jobs_and_same_command_resumes(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has a preset, whose mode must not turn each job into a sweep again."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ours = [*GRPO, "sweep=fixed_head", f"hydra/launcher={launcher}", f"output_dir={tmp_path}"]
    ours += ["hydra.launcher.n_jobs=2"] if launcher == "joblib" else []
    sweep = subprocess.Popen(
        command(*ours), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    deadline = time.monotonic() + LONGEST
    while not list(tmp_path.glob("stages/grpo/*/checkpoints/*.ckpt.seal")):
        assert sweep.poll() is None, sweep.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(sweep.pid, signal.SIGINT)  # the whole group, as a terminal does
    output, _ = sweep.communicate(timeout=LONGEST)
    assert sweep.returncode == 130, output
    assert {job["state"] for job in jobs_of(tmp_path)} == {"stopped"}
    assert "run the same command to continue" in output
    assert not list(tmp_path.glob("runs/*/*/summary.json"))

    time.sleep(1.0)  # sweeps are named by the second
    again = run(*ours)
    assert again.code == 0, again.said + again.errors
    assert [job["state"] for job in jobs_of(tmp_path)] == ["done", "done"]
    logs = [path.read_text() for path in sorted(max(tmp_path.glob("sweeps/*")).glob("*/log.txt"))]
    assert any(re.search(r"grpo: resuming in", log) for log in logs), logs
