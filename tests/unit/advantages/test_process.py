from __future__ import annotations

import random
from statistics import mean, stdev

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import MeanCentred, Process
from contrastive_reasoning.advantages.process import with_illegal
from contrastive_reasoning.rewards import Credit, StepCredit

EPSILON = 1e-6


def by_loops(credit: Credit, mask: torch.Tensor, group_size: int, weight: float) -> torch.Tensor:
    """The slow, obvious version of the formula in the docstring of ``process``."""
    assert credit.steps is not None
    expected = MeanCentred()(credit, mask, group_size).clone()
    for row, steps in enumerate(credit.steps):
        start = row // group_size * group_size
        group = [step for other in credit.steps[start : start + group_size] for step in other]
        for step in steps:
            peers = [other.value for other in group if other.depth == step.depth]
            if len(peers) < 2 or len(set(peers)) == 1:
                continue
            relative = (step.value - mean(peers)) / (stdev(peers) + EPSILON)
            for token in range(step.first_token, step.last_token + 1):
                expected[row, token] += weight * relative
    return expected * mask


def random_steps(rng: random.Random, tokens: int) -> list[StepCredit]:
    """Returns steps as in a search that backtracks: some have equal depth in one rollout."""
    borders = sorted(rng.sample(range(tokens), rng.choice([0, 2, 4, 6])))
    return [
        StepCredit(first, last, rng.choice([0.0, 1.0, rng.random()]), depth=rng.randint(1, 3))
        for first, last in zip(borders[::2], borders[1::2], strict=True)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_process_matches_loops(seed: int) -> None:
    rng = random.Random(seed)
    rows, group_size, tokens = 12, rng.choice([2, 3, 4, 6]), 9
    steps = [random_steps(rng, tokens) for _ in range(rows)]
    outcome = torch.tensor([rng.choice([0.0, 1.0]) for _ in range(rows)], dtype=torch.float64)
    credit = Credit(outcome=outcome, parts={}, steps=steps)
    lengths = torch.tensor([max([step.last_token + 1 for step in row], default=1) for row in steps])
    mask = torch.arange(tokens) < lengths[:, None]
    got = Process(outcome=MeanCentred(), weight=0.7, epsilon=EPSILON)(credit, mask, group_size)
    assert_close(got, by_loops(credit, mask, group_size, 0.7), rtol=1e-10, atol=1e-10)


def test_equal_step_values_add_exactly_zero() -> None:
    steps = [
        [StepCredit(0, 1, 0.1, depth=3), StepCredit(2, 2, 0.3, depth=2)],
        [StepCredit(0, 0, 0.1, depth=3)],
        [StepCredit(1, 2, 0.1, depth=3)],
    ]
    credit = Credit(outcome=torch.zeros(3), parts={}, steps=steps)
    mask = torch.ones(3, 3, dtype=torch.bool)
    got = Process(outcome=MeanCentred(), weight=1.0, epsilon=0.0)(credit, mask, 3)
    assert torch.equal(got, torch.zeros(3, 3))


def test_illegal_step_gets_same_advantage_as_losing_step() -> None:
    """Of three first moves, one keeps the target, one loses it and one is illegal: the last two get equal values."""
    steps = [[StepCredit(0, 0, 1.0, depth=2)], [StepCredit(0, 0, 0.0, depth=2)], []]
    illegal = [[], [], [StepCredit(0, 0, 0.0, depth=2, legal=False)]]
    credit = Credit(outcome=torch.zeros(3), parts={}, steps=steps, illegal=illegal)
    got = Process(outcome=MeanCentred(), weight=1.0, epsilon=0.0)(credit, torch.ones(3, 2, dtype=torch.bool), 3)
    root = 3**0.5
    assert_close(got, torch.tensor([[2 / root, 0.0], [-1 / root, 0.0], [-1 / root, 0.0]]))


def test_illegal_steps_stand_in_order_of_tokens() -> None:
    steps, illegal = [StepCredit(1, 1, 0.7, depth=1)], [StepCredit(0, 0, 0.0, depth=2, legal=False)]
    credit = Credit(outcome=torch.zeros(1), parts={}, steps=[steps], illegal=[illegal])
    assert [step.first_token for step in with_illegal(credit)[0]] == [0, 1]
