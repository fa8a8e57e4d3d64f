from __future__ import annotations

import io

from rich.console import Console

from experiments.sweep.job import Job, State
from experiments.sweep.metric import Found
from experiments.sweep.view import Row, as_line, as_table, shown, tally

METRIC = Found("test/verifier/accuracy_sampled", 0.4123)


def row(number: int, state: State, *, metric: Found | None = None, cause: str | None = None) -> Row:
    job = Job(number=number, overrides=(f"seed={number}", "a=1"), state=state, began=0.0, ended=90.0, cause=cause)
    return Row(job=job, where="grpo 3/60", metric=metric)


def printed(rows: list[Row], *, height: int) -> str:
    text = io.StringIO()
    Console(file=text, width=100).print(as_table(rows, ["seed"], title="sweep now", height=height))
    return text.getvalue()


def test_the_table_says_where_each_job_is() -> None:
    lines = printed([row(0, "done", metric=METRIC), row(1, "running"), row(2, "waiting")], height=10).splitlines()
    cells = [line.split() for line in lines]
    assert ["0", "seed=0", "done", "0.412", "test", "accuracy_sampled", "1.5"] in cells
    assert ["1", "seed=1", "running", "grpo", "3/60", "1.5"] in cells
    assert lines[-1].strip() == "3 jobs: 1 waiting, 1 running, 1 done"


def test_where_not_all_fit_those_that_run_and_those_that_failed_are_seen() -> None:
    rows = [row(0, "done"), row(1, "failed"), row(2, "done"), row(3, "running"), row(4, "waiting")]
    assert [each.job.number for each in shown(rows, 3)] == [1, 3, 4]
    assert "5 jobs" in printed(rows, height=1), "the tally counts what is not shown"


def test_markup_in_a_value_is_text() -> None:
    odd = Job(number=0, overrides=("stages=[grpo]",))
    text = io.StringIO()
    table = as_table([Row(job=odd, where="", metric=None)], ["stages"], title="", height=5)
    Console(file=text, width=100).print(table)
    assert "stages=[grpo]" in text.getvalue()


def test_a_line_says_the_cause_and_where_more_is_said() -> None:
    said = as_line(row(1, "failed", cause="clip_low must lie in [0, 1), got 5.0"), ["seed"], log="1/log.txt")
    assert said == "job 1 (seed=1): FAILED: clip_low must lie in [0, 1), got 5.0; log 1/log.txt"
    assert as_line(row(0, "done", metric=METRIC), ["seed"], log="") == (
        "job 0 (seed=0): done in 1.5 min · 0.412 test accuracy_sampled"
    )
    assert as_line(row(0, "stopped"), [], log="") == "job 0: stopped"


def test_one_job_is_no_plural() -> None:
    assert tally([row(0, "done")]) == "1 job: 1 done"
