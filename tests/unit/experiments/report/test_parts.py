"""What the sections choose to show."""

from __future__ import annotations

import math
from typing import Any

import pytest

from experiments.analysis.arms import arms_by
from experiments.report.charts import MOST_POINTS, thinned
from experiments.report.commands import study_line
from experiments.report.completions import MOST, chosen
from experiments.report.figures import steps_of
from experiments.report.settings import differences
from tests.unit.experiments.comparison_kit import finished


def test_short_histories_are_drawn_as_they_are() -> None:
    assert thinned([[(0, 0.1), (10, 0.2), (20, 0.3)], []]) == [{0: 0.1, 10: 0.2, 20: 0.3}]


def test_what_is_no_finite_number_is_a_gap_and_its_seed_counts() -> None:
    (first, second) = thinned([[(0, 0.1), (10, float("nan")), (20, -math.inf)], [(0, float("inf"))]])
    assert first == {0: 0.1, 10: math.nan, 20: math.nan}
    assert second == {0: math.nan}, "not left out: the mean would be over the other seed"
    long = [(step, math.inf if step < 20 or step % 2 else 1.0) for step in range(600)]
    (means,) = thinned([long])
    assert [means[step] for step in (0, 10, 20)] == [math.nan, math.nan, 1.0], "the means of ten steps"


def test_long_histories_are_means_over_the_same_steps() -> None:
    long, short = [(step, float(step)) for step in range(600)], [(step, 1.0) for step in range(300)]
    first, second = thinned([long, short])
    assert len(first) == MOST_POINTS
    assert (first[0], first[10]) == (4.5, 14.5), "of the steps 0 to 9 and 10 to 19"
    assert set(second) == {step for step in first if step < 300}


def test_completions_of_both_kinds_are_chosen() -> None:
    rows: list[dict[str, Any]] = [{"status": "ok", "n": n} for n in range(9)] + [{"status": "wrong", "n": 9}]
    assert [row["n"] for row in chosen(rows)] == [0, 9, 1, 2]
    assert len(chosen(rows[:9])) == MOST


def test_an_arm_of_a_study_is_run_by_the_line_that_draws_its_start_too() -> None:
    runs = [finished("my_study", seed=seed, metrics={}, params={"arm": "critic"}) for seed in (0, 1, 4)]
    (arm,) = arms_by(runs, ["arm"])
    assert study_line(arm) == "python -m experiments.study my_study only=critic seeds=5"
    (alone,) = arms_by([finished("llama_critic", seed=0, metrics={}, params={"arm": "null"})], ["experiment"])
    assert study_line(alone) is None


def test_the_steps_of_a_figure_are_in_the_order_of_numbers() -> None:
    files = ["figures/critic/goals/1200.png", "figures/critic/goals/900.png", "figures/critic/goals/notes.txt"]
    first, last = (900, "figures/critic/goals/900.png"), (1200, "figures/critic/goals/1200.png")
    assert steps_of([*files, "figures/a/0.png"]) == {"critic/goals": [first, last], "a": [(0, "figures/a/0.png")]}


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ({"lr": "1", "steps": "5"}, {"lr": "2", "steps": "5"}, [("lr", "1", "2")]),
        (
            {"reward.weight": "0.1", "module.reward.weight": "0.1", "module.lr": "1"},
            {"reward.weight": "0.2", "module.reward.weight": "0.2", "module.lr": "2"},
            [("module.lr", "1", "2"), ("reward.weight", "0.1", "0.2")],
        ),
        (
            {"reward.critic._target_": "Joint", "reward.critic.width": "512", "reward.critic.head._target_": "Head"},
            {},
            [("reward.critic._target_", "Joint", "—")],
        ),
        (
            {"critic._target_": "Joint", "critic.width": "512"},
            {"critic._target_": "Numeric", "critic.width": "64"},
            [("critic._target_", "Joint", "Numeric"), ("critic.width", "512", "64")],
        ),
    ],
    ids=["one", "told once, where it is shortest", "a part that is not there", "a part that is exchanged"],
)
def test_differences_of_two_configurations(
    ours: dict[str, str], theirs: dict[str, str], told: list[tuple[str, str, str]]
) -> None:
    assert differences(ours, theirs) == told
