from __future__ import annotations

from math import exp, log
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import CISPO, ObjectiveInputs, TokenMean

HIGH = 0.5


def cispo(**changes: Any) -> CISPO:
    settings: dict[str, Any] = {"clip_low": None, "clip_high": HIGH, "kl_weight": 0.0, "kl": None}
    return CISPO(**{**settings, "aggregation": TokenMean(), **changes})


def weight(given: ObjectiveInputs, i: int, t: int) -> float:
    return min(exp(given.log_probs[i, t].item() - given.old_log_probs[i, t].item()), 1 + HIGH)


def by_loops(given: ObjectiveInputs, log_probs: list[list[float]]) -> float:
    """The mean over tokens of −w A log π, the weights those of ``given``: constants, whatever ``log_probs`` are."""
    losses = [
        -weight(given, i, t) * given.advantages[i, t].item() * log_prob
        for i, row in enumerate(log_probs)
        for t, log_prob in enumerate(row)
        if given.mask[i, t]
    ]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.1, 0.8])
def test_loss_and_gradient_are_those_of_the_formula(ragged, numeric, gradient, seed: int, spread: float) -> None:
    given = ragged(seed, spread=spread, per_token=True)
    assert cispo()(given).loss.item() == pytest.approx(by_loops(given, given.log_probs.tolist()), rel=1e-12)
    expected = numeric(lambda log_probs: by_loops(given, log_probs), given.log_probs)
    assert_close(gradient(cispo(), given), expected, rtol=1e-6, atol=1e-9)


RATIOS = [[log(4.0), log(0.1), log(4.0), log(0.1)]]


def test_no_token_loses_its_gradient(rows, gradient) -> None:
    given = rows(RATIOS, [[1.0, 1.0, -1.0, -1.0]])
    assert_close(gradient(cispo(), given), torch.tensor([[-1.5, -0.1, 1.5, 0.1]], dtype=torch.float64) / 4)
    assert_close(gradient(cispo(clip_low=0.2), given)[0, 1], torch.tensor(-0.8 / 4, dtype=torch.float64))


def test_metrics_are_of_the_ratio_before_it_is_cut(rows) -> None:
    metrics = cispo()(rows(RATIOS, [[1.0, 1.0, -1.0, 0.0]])).metrics
    assert metrics["clip_fraction"].item() == 0.5
    assert metrics["ratio_mean"].item() == pytest.approx(8.2 / 4)
    assert metrics["ratio_max"].item() == pytest.approx(4.0)
    assert not any(value.requires_grad for value in metrics.values())
