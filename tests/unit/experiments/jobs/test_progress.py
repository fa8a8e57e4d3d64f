"""Display of running jobs: the progress of each, in a table and in lines."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from experiments.jobs.job import Job, State, write_job
from experiments.jobs.progress import LiveJobs, RunProgress, as_line, as_table
from experiments.run_folder.logger import format_line
from experiments.run_folder.reader import Metric

SAMPLED = "val/verifier/accuracy_sampled"


def log(folder: Path, *metrics: tuple[int, str, float]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(format_line(Metric(step, name, value, 0.0)) for step, name, value in metrics)


def write_stages(run: Path, *stages: str) -> None:
    entries = {name: {"folder": str(run.parent / name), "fingerprint": "", "reused": False} for name in stages}
    (run / "stages.json").write_text(json.dumps(entries))


def start_run(folder: Path, reward: str = "{warmup_steps: 10}") -> RunProgress:
    folder.mkdir()
    (folder / "config.yaml").write_text(
        f"budget: {{critic: {{steps: 9}}, grpo: {{steps: 60}}, evaluate: {{problems: 4}}}}\nreward: {reward}\n"
    )
    return RunProgress(folder)


def job(number: int, state: State, *, cause: str | None = None) -> Job:
    overrides = (f"seed={number}", r"stages=\[grpo\]")
    return Job(number=number, overrides=overrides, state=state, began=0.0, ended=90.0, cause=cause)


def test_run_progress_shows_newest_stage_step_and_metric(tmp_path: Path) -> None:
    progress = start_run(run := tmp_path / "run")
    progress.look()
    assert (progress.place, progress.metric) == ("starting", None)

    log(tmp_path / "critic", (9, "val/oracle/auroc_depth1", 0.75))
    write_stages(run, "critic", "grpo")
    progress.look()
    assert progress.place == "grpo 0/70", "without the steps of the stage before, with those that only warm up a reward"

    log(tmp_path / "grpo", (12, "train/reward/verifier", 0.1), (10, SAMPLED, 0.25), (9, SAMPLED, 0.4123))
    progress.look()
    assert (progress.place, str(progress.metric)) == ("grpo 12/70", "0.412 val accuracy_sampled")

    keys = ["seed", "stages"]
    jobs, text = [job(0, "done"), job(1, "running"), job(2, "waiting"), job(3, "failed")], io.StringIO()
    Console(file=text, width=100).print(as_table(jobs, {0: progress, 1: progress}, keys, title="now"))
    title, *rows = (line.split() for line in text.getvalue().splitlines())
    assert " ".join(title) == "now: 4 jobs: 1 waiting, 1 running, 1 done, 1 failed"
    assert [row[0] for row in rows if row and row[0].isdecimal()] == ["1", "3", "2", "0"], "a low terminal cuts the end"
    assert ["0", "seed=0", "stages=[grpo]", "done", "0.412", "val", "accuracy_sampled", "1.5"] in rows
    assert as_line(jobs[0], progress, keys[:1], log=Path()) == (
        "job 0 (seed=0): done in 1.5 min · 0.412 val accuracy_sampled"
    )
    write_stages(run, "critic", "grpo", "evaluate")
    progress.look()
    assert progress.place == "evaluate", "a stage without steps"


def test_run_progress_of_fixed_head_has_no_warmup_steps(tmp_path: Path) -> None:
    progress = start_run(run := tmp_path / "run", reward="{warmup_steps: 10, trainable: false}")
    write_stages(run, "grpo")
    progress.look()
    assert progress.place == "grpo 0/60"


def test_live_jobs_marks_job_without_process_as_failed(tmp_path: Path) -> None:
    text = io.StringIO()
    live = LiveJobs(group=tmp_path, expected=[job(0, "waiting"), job(1, "waiting")], console=Console(file=text))
    live.start()
    write_job(tmp_path, job(1, "running"))
    write_job(tmp_path, job(2, "failed", cause="clip_low must lie in [0, 1), got 5.0"))
    assert [(one.state, one.cause) for one in live.stop()] == [
        ("waiting", None),
        ("failed", "its process ended without a message"),
        ("failed", "clip_low must lie in [0, 1), got 5.0"),
    ]
    printed = text.getvalue()
    assert "job 1 (seed=1): FAILED" in printed
    assert (
        f"job 2 (seed=2): FAILED: clip_low must lie in [0, 1), got 5.0; log {tmp_path / '2' / 'log.txt'}\n" in printed
    )
