"""Which runs a study's report counts, and what it says of those that are not alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.study.finished import finished_marks
from experiments.study.plan import StudyError
from experiments.study.report import report
from experiments.study.results import read_results

FLAT, RISING = {0: 0.2, 10: 0.2}, {0: 0.2, 5: 0.4, 10: 0.4}


def test_a_run_of_another_configuration_counts_nowhere_however_new(runs: Any, tmp_path: Path) -> None:
    runs.add_two_arms()
    later = {"curve": RISING, "time": "2026-01-02T00-00-00"}
    for arm, seed in (("better", 1), ("better", 0), ("plain", 1), ("gone", 0)):
        runs.add(arm, seed, solved=[0, 0, 0, 0], configuration="another", **later)
    plain, better = read_results(runs.tracker, runs.study(), runs.marks)
    assert [list(result.greedy) for result in better.seeds.values()] == [[1, 1, 0, 1]] * 2
    assert [list(result.greedy) for result in plain.seeds.values()] == [[0, 1, 0, 0], [0, 1, 0, 1]]
    lines = report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    assert "4 runs of another configuration left out: better 0, 1; plain 1; gone 0." in lines


def test_seeds_beyond_those_asked_for_are_not_called_another_configuration(runs: Any, tmp_path: Path) -> None:
    runs.add_two_arms()
    for seed in (1, 2, 3):
        late = {"configuration": "another", "time": "2026-01-02T00-00-00"}
        runs.add("better", seed, solved=[0, 0, 0, 0], curve=RISING, **late)
    lines = report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    assert "1 run of another configuration left out: better 1." in lines
    assert "2 runs beyond the seeds that the study asks for left out: better 2, 3." in lines


def test_a_job_is_done_once_its_run_has_finished(runs: Any) -> None:
    runs.add_two_arms()
    runs.add("better", 2, solved=[1, 1, 1, 1], curve=RISING, finished=False)
    assert finished_marks(runs.tracker, runs.study()) == {mark for mark in runs.marks if mark.seed != "2"}
    assert len(runs.marks) == 5


def test_where_no_run_is_of_today_a_sentence_says_so(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT, configuration="another")
    runs.add("better", 0, solved=[0, 1], curve=FLAT, configuration="another")
    with pytest.raises(
        StudyError, match="2 runs have finished, none of today's configuration: since then a key, a code"
    ):
        read_results(runs.tracker, runs.study(), runs.marks)


def test_code_that_differs_over_the_runs_is_named(runs: Any, tmp_path: Path) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 0, solved=[0, 1], curve=FLAT)
    study = runs.study(seeds=1)
    assert not any("Made by" in line for line in report(runs.tracker, study, marks=runs.marks, output=tmp_path))
    runs.add("better", 1, solved=[1, 1], curve=FLAT, git_sha="def-dirty")
    lines = report(runs.tracker, study, marks=runs.marks, output=tmp_path)
    assert "Made by different code: [abc] plain 0; better 0; [def-dirty] better 1." in lines


@pytest.mark.parametrize("threads", [1, 2, None])
def test_other_numbers_of_threads_are_not_tested_alike(runs: Any, tmp_path: Path, threads: int | None) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT, threads=1)
    runs.add("better", 0, solved=[0, 1], curve=FLAT, threads=threads)
    lines = report(runs.tracker, runs.study(seeds=1), marks=runs.marks, output=tmp_path)
    assert ("The arms were not tested alike: threads differ." in lines) == (threads != 1)


@pytest.mark.parametrize(
    ("room", "key"), [("budget", "grpo.validation_problems"), ("rollout", "validation_samples"), ("rollout", "workers")]
)
def test_curves_of_other_problems_are_not_tested_alike(runs: Any, tmp_path: Path, room: str, key: str) -> None:
    for arm, number in (("plain", 64), ("better", 128)):
        values: Any = number
        for part in reversed(key.split(".")):
            values = {part: values}
        runs.add(arm, 0, solved=[0, 1], curve=FLAT, further={room: values})
    lines = report(runs.tracker, runs.study(seeds=1), marks=runs.marks, output=tmp_path)
    assert (f"The arms were not tested alike: {room}.{key} differ." in lines) == (key != "workers")
