"""VinePPO: differences of values on the tokens of steps against loops, and the gradient of the expected success."""

from __future__ import annotations

import random

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import MeanCentred, VinePPO
from contrastive_reasoning.rewards import Credit, StepCredit


def random_credit(rng: random.Random, rows: int, tokens: int) -> Credit:
    steps = []
    for _ in range(rows):
        borders = sorted(rng.sample(range(tokens), rng.choice([0, 2, 4, 6])))
        steps.append(
            [StepCredit(*pair, rng.random(), depth=1) for pair in zip(borders[::2], borders[1::2], strict=True)]
        )
    outcome = torch.tensor([rng.choice([0.0, 1.0]) for _ in range(rows)], dtype=torch.float64)
    return Credit(outcome=outcome, parts={}, steps=steps, starts=[rng.random() for _ in range(rows)])


@pytest.mark.parametrize("seed", range(8))
def test_vineppo_matches_loops(seed: int) -> None:
    rng = random.Random(seed)
    rows, group_size, tokens = 12, rng.choice([2, 3, 4, 6]), 9
    credit = random_credit(rng, rows, tokens)
    assert credit.steps is not None
    assert credit.starts is not None
    mask = torch.arange(tokens) < torch.tensor([rng.randint(7, tokens) for _ in range(rows)])[:, None]
    expected = MeanCentred()(credit, mask, group_size)
    for row, steps in enumerate(credit.steps):
        value = credit.starts[row]
        for step in steps:
            for token in range(step.first_token, step.last_token + 1):
                expected[row, token] += 0.7 * (step.value - value) * bool(mask[row, token])
            value = step.value
    got = VinePPO(outcome=MeanCentred(), weight=0.7)(credit, mask, group_size)
    assert_close(got, expected, rtol=1e-10, atol=1e-10)
    assert not got[~mask].any()


def test_vineppo_gradient_equals_that_of_expected_success() -> None:
    """Two steps of two choices each: E[Σ_k A_k ∇ log π(a_k)] over all rollouts equals ∇ of the share that succeeds.

    Values and starts are exact, and a value before a step does not depend on the step.
    """
    torch.manual_seed(0)
    logits = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)  # of the first step, then after each choice
    succeeds = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    chances = logits.softmax(-1)
    success = (chances[0] * (chances[1:] * succeeds).sum(1)).sum()
    (expected,) = torch.autograd.grad(success, logits, retain_graph=True)
    after = (chances[1:] * succeeds).sum(1).tolist()

    rows = [(a, b) for a in (0, 1) for b in (0, 1)]
    steps = [[StepCredit(0, 0, after[a], depth=2), StepCredit(1, 1, float(succeeds[a, b]), depth=1)] for a, b in rows]
    credit = Credit(outcome=torch.zeros(4, dtype=torch.float64), parts={}, steps=steps, starts=[success.item()] * 4)
    advantages = VinePPO(outcome=MeanCentred(), weight=1.0)(credit, torch.ones(4, 2, dtype=torch.bool), 4)
    log_probs = logits.log_softmax(-1)
    surrogate = sum(
        (chances[0, a] * chances[1 + a, b]).detach()
        * (advantages[row, 0] * log_probs[0, a] + advantages[row, 1] * log_probs[1 + a, b])
        for row, (a, b) in enumerate(rows)
    )
    assert isinstance(surrogate, torch.Tensor)
    (found,) = torch.autograd.grad(surrogate, logits)
    assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert expected.abs().max() > 0.01
