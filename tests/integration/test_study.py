"""A study of two arms by the command line: stopped, resumed, and with a job or a warm start that fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.jobs.finished import last_stage
from experiments.jobs.study_jobs import start_jobs
from experiments.jobs.study_plan import find_study
from experiments.mlflow_sync import Tracker

STUDY = """
question: Does the machinery run?
primary: {{metric: test/verifier/accuracy, arm: oracle, baseline: grpo}}
curve: val/verifier/accuracy_sampled
common: [debug=fast, policy.corpus.plays=50, budget.grpo.steps={steps}, 'output_dir={outputs}', logger.patience=60]
start: {{overrides: [experiment=llama_baseline], seed: {seed}}}
arms:
  grpo: {{about: the verifier alone, overrides: [experiment=llama_baseline], seeds: 2}}
  oracle: {{about: the oracle, overrides: [experiment=llama_oracle], seeds: 1}}
  broken: {{about: refused when it is built, overrides: [experiment=llama_baseline, objective.clip_low=5.0], seeds: 1}}
order: [[broken, grpo, oracle]]
parallel: 2
"""
LONGEST = 900.0
pytestmark = pytest.mark.slow


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-m", "experiments.study", str(folder / "tiny.yaml"), *options]
    return subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for_a_checkpoint(study: subprocess.Popen[str], outputs: Path) -> None:
    """Wait until a job is within its GRPO stage."""
    deadline = time.monotonic() + LONGEST
    while not list(outputs.glob("stages/grpo/*/checkpoints/*.ckpt.seal")):
        assert study.poll() is None, study.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_stopped_study_resumes_and_reports_finished_jobs(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    (tmp_path / "tiny.yaml").write_text(STUDY.format(outputs=outputs, seed=0, steps=12))
    study = start(tmp_path)
    wait_for_a_checkpoint(study, outputs)
    study.send_signal(signal.SIGINT)
    output, _ = study.communicate(timeout=LONGEST)
    assert study.returncode == 130, output
    logs = {path.parent.name: path.read_text() for path in (outputs / "studies" / "tiny").glob("*/log.txt")}
    assert any("run the same command again to resume" in log for log in logs.values()), logs

    study = start(tmp_path)
    output, _ = study.communicate(timeout=LONGEST)
    assert study.returncode == 1, output
    log = outputs / "studies" / "tiny" / "broken-0" / "log.txt"
    assert f"broken seed 0: FAILED, see {log}" in output
    assert "clip_low" in log.read_text()
    logs = {path.parent.name: path.read_text() for path in log.parent.parent.glob("*/log.txt")}
    assert any("grpo: resuming in" in text for text in logs.values()), logs

    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    done = [run for run in tracker.runs(["tiny"], kind="experiment") if run.status == "FINISHED"]
    assert sorted((run.tags["arm"], run.tags["seed"]) for run in done) == [
        *(("grpo", "0"), ("grpo", "1"), ("oracle", "0"), ("start", "0"))
    ]
    assert {run.tags["study"] for run in done} == {"tiny"}
    policies = {run.params["policy.pretrained"] for run in done if run.tags["arm"] != "start"}
    (policy,) = policies
    assert Path(policy, "model.safetensors").is_file()

    study = start(tmp_path, "only=grpo,oracle")
    output, _ = study.communicate(timeout=LONGEST)
    assert study.returncode == 0, output
    assert "3 of 3 jobs are finished; 0 to run" in output
    table = (tmp_path / "outputs" / "compare" / "tiny" / "study.md").read_text()
    assert "| grpo | 2 |" in table
    assert "| oracle | 1 |" in table
    assert "at equal tokens and seconds" in table


def test_failed_warm_start_of_one_seed_does_not_stop_others(tmp_path: Path) -> None:
    outputs, file = tmp_path / "outputs", tmp_path / "tiny.yaml"
    file.write_text(STUDY.format(outputs=outputs, seed="each", steps=2))
    blocked = last_stage(start_jobs(find_study(str(file)))[1]).folder
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the folder of seed 1's warm start should be\n")
    output, _ = (study := start(tmp_path, "only=grpo")).communicate(timeout=LONGEST)
    assert study.returncode == 1, output
    assert f"start seed 1: FAILED, see {outputs / 'studies' / 'tiny' / 'start-1' / 'log.txt'}" in output
    assert "| grpo | 1 |" in (outputs / "compare" / "tiny" / "study.md").read_text()

    blocked.unlink()
    output, _ = (study := start(tmp_path, "only=grpo")).communicate(timeout=LONGEST)
    assert study.returncode == 0, output
    assert "1 of 2 jobs are finished; 1 to run" in output
    assert "not tested alike" not in output
    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = [run for run in tracker.runs(["tiny"], kind="experiment") if run.status == "FINISHED"]
    begun = {(run.tags["seed"], run.params["policy.pretrained"]) for run in runs if run.tags["arm"] != "start"}
    assert len(begun) == len({seed for seed, _ in begun}) == len({policy for _, policy in begun}) == 2
