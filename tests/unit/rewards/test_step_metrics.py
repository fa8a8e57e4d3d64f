"""Metrics of how well step values separate correct from wrong rollouts, against pairs counted one by one."""

from __future__ import annotations

import random
from statistics import correlation

import pytest
import torch

from contrastive_reasoning.rewards import StepCredit
from contrastive_reasoning.rewards.step_metrics import Judged, auroc, step_metrics, within_group_correlation
from contrastive_reasoning.tasks.base import Verdict

GROUP = 4


def by_pairs(steps: list[tuple[float, bool, int]]) -> float | None:
    """The slow, obvious version, for steps of (value, correct, stratum)."""
    won = [
        1.0 if value > other else 0.5 if value == other else 0.0
        for value, right, stratum in steps
        for other, also_right, same in steps
        if right and not also_right and stratum == same
    ]
    return sum(won) / len(won) if won else None


@pytest.mark.parametrize("seed", range(5))
def test_auroc_matches_count_of_pairs(seed: int) -> None:
    rng = random.Random(seed)
    steps = [(rng.choice([0.1, 0.2, rng.random()]), rng.random() < 0.3, rng.randint(0, 5)) for _ in range(60)]
    values, correct, stratum = (torch.tensor(column) for column in zip(*steps, strict=True))
    assert auroc(values, correct, stratum) == pytest.approx(by_pairs(steps))
    assert auroc(values, correct) == pytest.approx(by_pairs([(value, right, 0) for value, right, _ in steps]))


def test_auroc_is_exact_with_huge_stratum_number() -> None:
    values, correct = torch.tensor([0.1, 0.1 + 1e-7]), torch.tensor([False, True])
    assert auroc(values, correct, torch.tensor([10**12, 10**12])) == 1.0


def verdicts(correct: list[bool]) -> list[Verdict]:
    return [Verdict(status="ok" if right else "wrong", reason="") for right in correct]


@pytest.mark.parametrize("seed", range(4))
def test_step_metrics_match_loops(seed: int) -> None:
    rng = random.Random(seed)
    judged = [
        [Judged(rng.random(), depth, depth == 1) for depth in range(3, 3 - rng.randint(0, 3), -1)]
        for _ in range(5 * GROUP)
    ]
    correct = [rng.random() < 0.4 for _ in judged]
    got = step_metrics(judged, [], verdicts(correct), GROUP)
    flat = [
        (step.value, correct[row], step.depth, row // GROUP)
        for row, steps in enumerate(judged)
        for step in steps
        if not step.finished
    ]
    assert got["steps/auroc"] == pytest.approx(by_pairs([(v, c, d) for v, c, d, _ in flat]))
    assert got["steps/auroc_depth2"] == pytest.approx(by_pairs([(v, c, 0) for v, c, d, _ in flat if d == 2]))
    assert got["steps/auroc_siblings"] == pytest.approx(by_pairs([(v, c, 10 * g + d) for v, c, d, g in flat]))
    assert "steps/auroc_depth1" not in got, "a finished state tells the verdict to anyone"
    means = {
        row: sum(of_row) / len(of_row)
        for row, steps in enumerate(judged)
        if (of_row := [step.value for step in steps if not step.finished])
    }
    assert len(means) < len(judged), "a rollout without a value is in none of the groups"
    groups = {row: [other for other in means if other // GROUP == row // GROUP] for row in means}
    centred = [
        [column[row] - sum(column[other] for other in those) / len(those) for row, those in groups.items()]
        for column in (means, [float(right) for right in correct])
    ]
    assert got["steps/outcome_correlation"] == pytest.approx(correlation(*centred), abs=1e-6)
    assert got["steps/return"] == pytest.approx(sum(means.values()) / len(judged))


def test_step_metrics_without_verdicts_are_return_and_repeated() -> None:
    placed = [[StepCredit(0, 1, 0.5, depth=3), StepCredit(2, 3, 0.5, depth=3, again=True)], []]
    judged = [[Judged(0.5, 3, False)] * 2, []]
    assert step_metrics(judged, placed, None, 2) == {
        "steps/return": 0.25,
        "steps/repeated": 0.5,
    }
    assert step_metrics([[], []], [[], []], verdicts([True, False]), 2) == {"steps/return": 0.0}


def test_auroc_siblings_separates_groups_with_negative_depths() -> None:
    """Steps whose states are not sequences have depths 0, −1, …: each pair of group and depth is a stratum."""
    rows, correct = [[0.9, 0.2, 0.7], [0.1, 0.6, 0.3], [0.4, 0.8, 0.5], [0.3, 0.1, 0.95]], [True, False, False, True]
    judged = [[Judged(value, -index, False) for index, value in enumerate(row)] for row in rows]
    flat = [(v, correct[n], 10 * (n // 2) + index) for n, row in enumerate(rows) for index, v in enumerate(row)]
    assert step_metrics(judged, [], verdicts(correct), 2)["steps/auroc_siblings"] == pytest.approx(by_pairs(flat))


def test_within_group_correlation_with_constant_is_none() -> None:
    varied, groups = torch.tensor([0.0, 1.0, 1.0, 0.0]).double(), torch.tensor([0, 0, 1, 1])
    assert within_group_correlation(varied, torch.tensor([0.1, 0.1, 0.3, 0.3]).double(), groups) is None
    assert within_group_correlation(varied, varied, groups) == pytest.approx(1.0)
    thirds = torch.tensor([0.1, 0.1, 0.1, 0.0]).double()
    assert within_group_correlation(thirds, thirds, torch.tensor([0, 0, 0, 1])) is None, "0.1 is not the mean of three"
    assert within_group_correlation(varied[:0], varied[:0], groups[:0]) is None


def test_step_metrics_leave_out_rollout_with_verdict_error() -> None:
    rng = random.Random(0)
    judged = [[Judged(rng.random(), depth, False) for depth in (3, 2)] for _ in range(2 * GROUP)]
    all_verdicts = verdicts([rng.random() < 0.5 for _ in judged])
    failed = [Verdict(status="error", reason="out of order"), *all_verdicts[1:]]
    got, without = step_metrics(judged, [], failed, GROUP), step_metrics([[], *judged[1:]], [], all_verdicts, GROUP)
    means = [sum(step.value for step in row) / 2 for row in judged[1:]]
    assert got.pop("steps/return") == pytest.approx(sum(means) / len(means)), "the others' mean, not theirs and a 0"
    without.pop("steps/return")
    assert got == without
    assert got != step_metrics(judged, [], verdicts([False, *[one.correct for one in all_verdicts[1:]]]), GROUP)
