from __future__ import annotations

from math import exp
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import GMPO, ObjectiveInputs, SeqMeanTokenMean, TokenMean

LOW, HIGH = 0.3, 0.4


def gmpo(**changes: Any) -> GMPO:
    settings: dict[str, Any] = {"clip_low": LOW, "clip_high": HIGH, "kl_weight": 0.0, "kl": None}
    return GMPO(**{**settings, "aggregation": TokenMean(), **changes})


def by_loops(given: ObjectiveInputs, log_probs: list[list[float]], *, by_token: bool) -> float:
    """−A · (Π ρ)^(1/|y|) with every ρ bounded, over tokens or over rollouts; A of the first token."""
    total = count = 0.0
    for i, row in enumerate(log_probs):
        tokens = [t for t in range(len(row)) if given.mask[i, t]]
        if not tokens:
            continue
        a, product = given.advantages[i, 0].item(), 1.0
        for t in tokens:
            ratio = exp(row[t] - given.old_log_probs[i, t].item())
            product *= min(ratio, exp(HIGH)) if a > 0 else max(ratio, exp(-LOW))
        share = len(tokens) if by_token else 1
        total -= share * a * product ** (1 / len(tokens))
        count += share
    return total / count


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.2, 0.8])
@pytest.mark.parametrize("by_token", [True, False])
def test_loss_and_gradient_are_those_of_the_formula(
    ragged, numeric, gradient, seed: int, spread: float, by_token: bool
) -> None:
    given = ragged(seed, spread=spread, per_token=False)
    objective = gmpo(aggregation=TokenMean() if by_token else SeqMeanTokenMean())
    expected = by_loops(given, given.log_probs.tolist(), by_token=by_token)
    assert objective(given).loss.item() == pytest.approx(expected, rel=1e-12)
    wanted = numeric(lambda log_probs: by_loops(given, log_probs, by_token=by_token), given.log_probs)
    assert_close(gradient(objective, given), wanted, rtol=1e-6, atol=1e-9)


def test_a_token_is_bounded_only_where_it_would_gain(rows, gradient) -> None:
    better = rows([[2.0, -2.0, 0.1]], [[1.0] * 3])
    s = exp((HIGH - 2.0 + 0.1) / 3)
    assert gmpo()(better).loss.item() == pytest.approx(-s)
    assert_close(gradient(gmpo(), better), torch.tensor([[0.0, -s / 3, -s / 3]], dtype=torch.float64))
    worse = rows([[2.0, -2.0, 0.1]], [[-1.0] * 3])
    s = exp((2.0 - LOW + 0.1) / 3)
    assert gmpo()(worse).loss.item() == pytest.approx(s)
    assert_close(gradient(gmpo(), worse), torch.tensor([[s / 3, 0.0, s / 3]], dtype=torch.float64))


def test_credit_of_a_step_stays_on_its_tokens(rows, gradient) -> None:
    got = gradient(gmpo(), rows([[0.0, 0.0, 0.0]], [[3.0, -1.0, 0.0]]))
    assert_close(got, torch.tensor([[-1.0, 1 / 3, 0.0]], dtype=torch.float64))


def test_a_completion_that_ran_away_is_bounded(rows, gradient) -> None:
    given = rows([[90.0, 90.0]], [[-1.0, -1.0]])
    assert gmpo()(given).loss.item() == pytest.approx(exp(10))
    assert not gradient(gmpo(), given).any()
