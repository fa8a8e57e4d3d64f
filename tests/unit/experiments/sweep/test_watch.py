"""What a sweep's process does around its jobs: one sweep in a folder, and what came of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from experiments.jobs.job import Job, State, write_job
from experiments.sweep import watch
from experiments.sweep.watch import summarise

SAMPLED = "test/verifier/accuracy_sampled"


def test_a_folder_is_one_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Two that are told the same folder, or begin at the same instant, would run each other's jobs."""
    monkeypatch.setattr(watch, "_held", [])
    watch._hold(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        watch._hold(tmp_path)
    assert f"another sweep runs in {tmp_path}: give this one a hydra.sweep.dir of its own" in capsys.readouterr().err


def job(number: int, *overrides: str, state: State = "done", cause: str | None = None) -> Job:
    return Job(number=number, overrides=overrides, state=state, cause=cause)


def left(sweep: Path, made: Job, metrics: dict[str, float]) -> Job:
    """The job, and the folders that it would have left."""
    run = sweep.parent / "runs" / str(made.number)
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps({"seconds": 1.0, "metrics": {"evaluate": metrics}}))
    write_job(sweep, made)
    (sweep / str(made.number) / "run.json").write_text(json.dumps({"folder": str(run)}))
    return made


def test_a_sweep_leaves_a_table_a_picture_and_the_causes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep"
    jobs = [
        left(sweep, job(n, f"reward.temperature={tau}", "sweep=tau"), {SAMPLED: value})
        for n, (tau, value) in enumerate([(0.2, 0.25), (0.05, 0.5), (0.02, 0.375)])
    ]
    jobs.append(job(3, "reward.temperature=-1", "sweep=tau", state="failed", cause="temperature must be positive"))
    lines = summarise(sweep, jobs)
    rows = list(csv.DictReader((sweep / "summary.csv").open()))
    assert [(row["reward.temperature"], float(row["mean"])) for row in rows] == [
        *(("0.05", 0.5), ("0.02", 0.375), ("0.2", 0.25))
    ]
    assert (sweep / "reward.temperature.png").stat().st_size > 10_000
    assert lines[0] == "4 jobs: 3 done, 1 failed"
    assert lines[-1].startswith("job 3 (reward.temperature=-1) FAILED: temperature must be positive; log ")
    said = capsys.readouterr().out
    assert said.index("0.500") < said.index("0.375") < said.index("0.250")
