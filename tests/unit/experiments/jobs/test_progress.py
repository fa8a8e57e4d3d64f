"""What is shown of jobs while they run: how far each is, in a table and in lines."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from experiments.jobs.job import Job, State, write_job
from experiments.jobs.progress import LiveJobs, RunProgress, as_line, as_table, shown, tally
from experiments.run_folder import Metric
from experiments.run_folder.logger import format_line
from experiments.system.files import write_json

SAMPLED = "val/verifier/accuracy_sampled"


def entry(folder: Path, *, reused: bool = False) -> dict[str, object]:
    return {"folder": str(folder), "fingerprint": folder.name, "reused": reused}


def log(folder: Path, *metrics: tuple[int, str, float]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(format_line(Metric(step, name, value, 0.0)) for step, name, value in metrics)


def running(folder: Path) -> RunProgress:
    """A run at step 3 of 60 of its GRPO stage."""
    folder.mkdir()
    (folder / "config.yaml").write_text("budget: {critic: {steps: 9}, grpo: {steps: 60}, evaluate: {problems: 4}}\n")
    write_json(folder / "stages.json", {"grpo": entry(folder / "grpo")})
    log(folder / "grpo", (3, SAMPLED, 0.4123))
    progress = RunProgress(folder)
    progress.look()
    return progress


def job(number: int, state: State, *, cause: str | None = None) -> Job:
    overrides = (f"seed={number}", "stages=[grpo]")
    return Job(number=number, overrides=overrides, state=state, began=0.0, ended=90.0, cause=cause)


def printed(jobs: list[Job], runs: dict[int, RunProgress | None], *, height: int) -> str:
    text = io.StringIO()
    Console(file=text, width=100).print(as_table(jobs, runs, ["seed", "stages"], title="now", height=height))
    return text.getvalue()


def test_the_newest_stage_its_step_and_metric_are_followed(tmp_path: Path) -> None:
    run, grpo, critic = (tmp_path / name for name in ("run", "grpo", "critic"))
    run.mkdir()
    (run / "config.yaml").write_text(
        "budget: {critic: {steps: 9}, grpo: {steps: 60}, evaluate: {problems: 4}}\nreward: {warmup_steps: 10}\n"
    )
    progress = RunProgress(run)
    progress.look()
    assert (progress.place, progress.metric) == ("starting", None)

    log(critic, (9, "val/oracle/auroc_depth1", 0.75))
    stages = {"critic": entry(critic, reused=True), "grpo": entry(grpo)}
    (run / "stages.json").write_text(json.dumps(stages))
    progress.look()
    assert progress.place == "grpo 0/70", "without the steps of the stage before, with those that only warm up a reward"

    log(grpo, (12, "train/reward/verifier", 0.1), (10, SAMPLED, 0.25))
    progress.look()
    assert progress.place == "grpo 12/70"
    assert str(progress.metric) == "0.250 val accuracy_sampled"

    log(grpo, (13, SAMPLED, 0.5))
    progress.look()
    assert (progress.place, str(progress.metric)) == ("grpo 13/70", "0.500 val accuracy_sampled")

    (run / "stages.json").write_text(json.dumps(stages | {"evaluate": entry(tmp_path / "evaluate")}))
    progress.look()
    assert progress.place == "evaluate", "a stage without steps"


def test_the_table_has_each_job_with_its_place(tmp_path: Path) -> None:
    """A value that looks like markup is text."""
    run = running(tmp_path / "run")
    lines = printed([job(0, "done"), job(1, "running"), job(2, "waiting")], {0: run, 1: run}, height=10).splitlines()
    cells = [line.split() for line in lines]
    assert ["0", "seed=0", "stages=[grpo]", "done", "0.412", "val", "accuracy_sampled", "1.5"] in cells
    assert any(line[:5] == ["1", "seed=1", "stages=[grpo]", "running", "grpo"] and "3/60" in line for line in cells)
    assert lines[-1].strip() == "3 jobs: 1 waiting, 1 running, 1 done"


def test_where_not_all_fit_those_that_run_and_those_that_failed_are_seen() -> None:
    jobs = [job(0, "done"), job(1, "failed"), job(2, "done"), job(3, "running"), job(4, "waiting")]
    assert [each.number for each in shown(jobs, 3)] == [1, 3, 4]
    assert "5 jobs" in printed(jobs, {}, height=1), "the tally counts what is not shown"
    assert tally(jobs[:1]) == "1 job: 1 done"


def test_a_line_has_the_cause_and_the_log(tmp_path: Path) -> None:
    failed = job(1, "failed", cause="clip_low must lie in [0, 1), got 5.0")
    assert as_line(failed, None, ["seed"], log=Path("1/log.txt")) == (
        "job 1 (seed=1): FAILED: clip_low must lie in [0, 1), got 5.0; log 1/log.txt"
    )
    assert as_line(job(0, "done"), running(tmp_path / "run"), ["seed"], log=Path()) == (
        "job 0 (seed=0): done in 1.5 min · 0.412 val accuracy_sampled"
    )
    assert as_line(job(0, "stopped"), None, [], log=Path()) == "job 0: stopped"


def test_a_job_whose_process_vanished_has_failed(tmp_path: Path) -> None:
    text = io.StringIO()
    live = LiveJobs(group=tmp_path, expected=[job(0, "waiting"), job(1, "waiting")], console=Console(file=text))
    live.start()
    write_job(tmp_path, job(1, "running"))
    assert [(one.state, one.cause) for one in live.stop()] == [
        ("waiting", None),
        ("failed", "its process ended without a message"),
    ]
    assert "job 1 (seed=1): FAILED" in text.getvalue()
