from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from math import sqrt

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import GroupRelative, Process, Survival
from contrastive_reasoning.advantages.survival import centre_by_survival
from contrastive_reasoning.rewards import Credit, StepCredit
from contrastive_reasoning.tasks.base import Verdict

OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)


def verdict(correct: bool) -> Verdict:
    return Verdict(status="ok" if correct else "wrong", reason="" if correct else "misses the target")


def survival(weight: float = 1.0) -> Survival:
    return Survival(outcome=OUTCOME, weight=weight, epsilon=1e-6)


def credit_of(rows: list[list[StepCredit]], starts: list[float], correct: list[bool]) -> Credit:
    outcome = torch.tensor(correct, dtype=torch.float64)
    return Credit(outcome=outcome, parts={}, steps=rows, starts=starts, verdicts=[verdict(value) for value in correct])


def test_step_from_lost_state_gets_no_credit() -> None:
    """Four rollouts of two moves: one wins, one loses the target with its last move, two with their first."""
    lost = [StepCredit(0, 1, 0.0, depth=2), StepCredit(2, 3, 0.0, depth=1)]
    rows = [[StepCredit(0, 1, 1.0, depth=2), StepCredit(2, 3, 0.0, depth=1)] for _ in range(2)] + [lost, lost]
    correct = [True, False, False, False]
    credit, mask = credit_of(rows, [1.0] * 4, correct), torch.ones(4, 4, dtype=torch.bool)
    step = survival()(credit, mask, 4) - OUTCOME(credit, mask, 4)
    # depth 2: c = 2/4, δ = ±1/2, σ² = (4 · 1/4) / 4; depth 1: c = 1/2 of the two not yet lost; Φ(s′) is the verdict
    assert_close(step[:, 0], torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64), atol=1e-5, rtol=0)
    assert_close(step[:, 3], torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64), atol=1e-5, rtol=0)
    by_process = Process(outcome=OUTCOME, weight=1.0, epsilon=1e-6)(credit, mask, 4) - OUTCOME(credit, mask, 4)
    assert by_process[2, 3] == 0.0, "here the values of lost states are equal; the verdict is not among them"


def naive(rows: list[list[StepCredit]], starts: list[float], correct: list[bool], group: int) -> list[list[float]]:
    """The slow version in exact fractions: a backward search for parents and explicit sums over the group."""

    def before(row: int, index: int) -> Fraction | None:
        deeper = [rows[row][k] for k in range(index) if rows[row][k].depth == rows[row][index].depth + 1]
        if deeper:
            return after(row, rows[row].index(deeper[-1]))
        return Fraction(starts[row]) if rows[row][index].depth == rows[row][0].depth else None

    def after(row: int, index: int) -> Fraction:
        last = index == len(rows[row]) - 1
        return Fraction(correct[row]) if last and rows[row][index].depth == 1 else Fraction(rows[row][index].value)

    found = [[0.0] * len(row) for row in rows]
    for row, steps in enumerate(rows):
        for index, step in enumerate(steps):
            if step.again or before(row, index) is None:
                continue
            first = row - row % group
            peers = [
                (before(i, k), after(i, k))
                for i in range(first, first + group)
                for k, other in enumerate(rows[i])
                if other.depth == step.depth and not other.again and before(i, k) is not None
            ]
            had, kept = sum(pair[0] or 0 for pair in peers), sum(pair[1] for pair in peers)
            if had == 0 or len(set(peers)) == 1:
                continue
            gains = [b - kept / had * (a or 0) for a, b in peers]
            spread = sqrt(max(kept / had * (1 - kept / had), sum(gain * gain for gain in gains) / had))
            found[row][index] = float(after(row, index) - kept / had * (before(row, index) or 0)) / (spread + 1e-6)
    return found


def random_step(rng: random.Random, k: int) -> StepCredit:
    value = rng.choice([0.0, 0.25, rng.random()])
    return StepCredit(2 * k, 2 * k + 1, value, depth=rng.randint(1, 3), again=rng.random() < 0.2)


def test_survival_matches_slow_version_in_searches_with_revisits() -> None:
    rng = random.Random(0)
    for _ in range(60):
        rows = [[random_step(rng, k) for k in range(rng.randint(0, 5))] for _ in range(6)]
        starts = [rng.choice([0.0, 0.5, 1.0])] * 3 + [rng.random()] * 3
        correct = [rng.random() < 0.4 for _ in range(6)]
        credit, mask = credit_of(rows, starts, correct), torch.ones(6, 10, dtype=torch.bool)
        step = survival()(credit, mask, 3) - OUTCOME(credit, mask, 3)
        for row, values in enumerate(naive(rows, starts, correct, 3)):
            for k, value in enumerate(values):
                assert step[row, 2 * k : 2 * k + 2].tolist() == pytest.approx([value] * 2, abs=1e-9, rel=1e-9)
            assert not step[row, 2 * len(values) :].any()


@pytest.mark.parametrize("pairs", [[(0.1, 0.3)] * 7, [(0.0, 0.0), (0.0, 0.0)], [(0.7, 0.2)]])
def test_equal_pairs_get_exactly_zero(pairs: list[tuple[float, float]]) -> None:
    assert centre_by_survival(pairs, epsilon=1e-6) == [0.0] * len(pairs)


@pytest.mark.parametrize("kept", [1.0, 0.0])
def test_group_that_keeps_or_loses_all_value_gets_zero(kept: float) -> None:
    pairs = [(1.0, kept), (0.0, 0.0), (1.0, kept)]
    assert centre_by_survival(pairs, epsilon=0.0) == [0.0] * 3


@pytest.mark.parametrize("kept", [0.02, 0.98])
def test_epsilon_suppresses_noise_of_critic(kept: float) -> None:
    """All steps of the group lose nearly all value, or all keep it: differences in the fourth decimal are noise."""
    rng = random.Random(0)
    pairs = [(0.9, kept + rng.uniform(-5e-4, 5e-4)) for _ in range(8)]
    assert max(map(abs, centre_by_survival(pairs, epsilon=0.05))) < 0.02
    decided = [(0.9, 0.98 if k % 2 else 0.02) for k in range(8)]
    assert min(map(abs, centre_by_survival(decided, epsilon=0.05))) > 0.8


def test_illegal_step_has_value_zero_and_leaves_state_unchanged() -> None:
    """One rollout keeps the value and wins; the other makes an illegal step, keeps the value and loses at the end."""
    rows = [
        [StepCredit(0, 0, 1.0, depth=2), StepCredit(1, 1, 1.0, depth=1)],
        [StepCredit(1, 1, 1.0, depth=2), StepCredit(2, 2, 0.0, depth=1)],
    ]
    illegal = [[], [StepCredit(0, 0, 0.0, depth=2, legal=False)]]
    credit = replace(credit_of(rows, [1.0, 1.0], [True, False]), illegal=illegal)
    step = survival()(credit, torch.ones(2, 3, dtype=torch.bool), 2) - OUTCOME(credit, torch.ones(2, 3) > 0, 2)
    # depth 2: three decisions, c = 2/3, σ² = 2/9; depth 1: Φ(s) is what the legal step kept, c = 1/2, σ² = 1/4
    kept, lost = (1 / 3) / sqrt(2 / 9), (-2 / 3) / sqrt(2 / 9)
    expected = torch.tensor([[kept, 1.0, 0.0], [lost, kept, -1.0]], dtype=torch.float64)
    assert_close(step, expected, atol=1e-5, rtol=0)
