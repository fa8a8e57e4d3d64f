from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from experiments.sweep.job import Job, State, write_job
from experiments.sweep.summary import rows_of, shared_metric, summarise

SAMPLED, VALIDATION = "test/verifier/accuracy_sampled", "val/verifier/accuracy_sampled"


def job(number: int, *overrides: str, state: State = "done", cause: str | None = None) -> Job:
    return Job(number=number, overrides=overrides, state=state, cause=cause)


def left(sweep: Path, made: Job, metrics: dict[str, float]) -> Job:
    """The job, and the folders that it would have left."""
    run = sweep.parent / "runs" / str(made.number)
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps({"seconds": 1.0, "metrics": {"evaluate": metrics}}))
    write_job(sweep / str(made.number), made)
    (sweep / str(made.number) / "run.json").write_text(json.dumps({"folder": str(run)}))
    return made


def test_seeds_are_together_and_the_best_is_first() -> None:
    jobs = [job(2 * t + s, f"tau={tau}", f"seed={s}") for t, tau in enumerate((0.2, 0.1)) for s in range(2)]
    low, high = rows_of(jobs, {0: 0.1, 1: 0.3, 2: 0.5, 3: 0.7}, ["tau", "seed"])[::-1]
    assert (high.values, high.seeds) == ({"tau": "0.1"}, {"0": 0.5, "1": 0.7})
    assert high.estimate.value == pytest.approx(0.6)
    assert high.estimate.half == pytest.approx(12.706 * 0.1, rel=1e-4), "t(1) · s/√2 of 0.5 and 0.7"
    assert low.values == {"tau": "0.2"}


def test_what_is_not_finite_comes_last_and_what_is_missing_not_at_all() -> None:
    jobs = [job(0, "tau=1"), job(1, "tau=2"), job(2, "tau=3")]
    rows = rows_of(jobs, {0: math.nan, 1: 0.2}, ["tau"])
    assert [row.values["tau"] for row in rows] == ["2", "1"]


def test_the_metric_is_the_first_that_most_jobs_have() -> None:
    assert shared_metric([{SAMPLED: 0.1, VALIDATION: 0.2}, {SAMPLED: 0.3, VALIDATION: 0.1}]) == SAMPLED
    assert shared_metric([{SAMPLED: 0.1, VALIDATION: 0.2}, {VALIDATION: 0.1}]) == VALIDATION
    assert shared_metric([{"train/loss": 1.0}]) is None


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


def test_what_a_temperature_does_to_positive_pairs_is_drawn_where_it_was_logged(tmp_path: Path) -> None:
    jobs = [
        left(tmp_path, job(n, f"reward.temperature={tau}"), {SAMPLED: 0.5, "train/clipo/positive_cosine": cosine})
        for n, (tau, cosine) in enumerate([(0.2, 0.3), (0.05, 0.6), (0.02, 0.9)])
    ]
    pictures = [tmp_path / f"reward.temperature{ending}.png" for ending in ("", ".positive_cosine")]
    lines = summarise(tmp_path, jobs)
    assert [line for line in lines if line.endswith(".png")] == [f"Written: {path}" for path in pictures]
    assert pictures[1].stat().st_size > 10_000
    assert pictures[0].read_bytes() != pictures[1].read_bytes()


def test_of_a_sweep_that_diverged_throughout_there_is_a_table_and_no_picture(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    jobs = [left(sweep, job(n, f"tau={tau}"), {SAMPLED: math.inf}) for n, tau in enumerate((0.2, 0.1, 0.05))]
    assert summarise(sweep, jobs)[1:] == [f"Written: {sweep / 'summary.csv'}"]
    assert {row["mean"] for row in csv.DictReader((sweep / "summary.csv").open())} == {"inf"}


def test_a_value_at_which_all_diverged_has_its_place_in_the_picture(tmp_path: Path) -> None:
    sweep, finals = tmp_path / "sweep", {"0.2": 0.3, "0.1": 0.4, "0.05": math.nan}
    jobs = [left(sweep, job(n, f"tau={tau}"), {SAMPLED: finals[tau]}) for n, tau in enumerate(finals)]
    assert summarise(sweep, jobs)[2] == f"Written: {sweep / 'tau.png'}"


def test_without_any_primary_metric_it_says_which_were_looked_for(tmp_path: Path) -> None:
    done = left(tmp_path / "sweep", job(0, "seed=0"), {"train/loss": 0.1})
    assert summarise(tmp_path / "sweep", [done])[1].startswith(f"no job left any of {SAMPLED}, ")
