"""GSPO and GMPO: values and gradients by hand."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import GMPO, GSPO, SeqMeanTokenMean, TokenMean
from tests.unit.objectives.objective_kit import gradient, rows

LOW, HIGH = 0.3, 0.4
"""GMPO's bounds of log ρ."""


def gspo(**changes: Any) -> GSPO:
    settings: dict[str, Any] = {"clip_low": 0.1, "clip_high": 0.15, "kl_weight": 0.0, "kl": None}
    return GSPO(**{**settings, "aggregation": SeqMeanTokenMean(), **changes})


def test_gspo_clipping_removes_gradient_of_whole_completions_only() -> None:
    """The first row's mean log-ratio is 0.05, although single tokens are far from it; the second row's is 0.4."""
    given = rows([[0.9, -0.8], [0.4, 0.4]], [[1.0, 1.0], [1.0, 1.0]])
    expected = torch.tensor([[-exp(0.05) / 4] * 2, [0.0, 0.0]], dtype=torch.float64)
    assert_close(gradient(gspo(), given), expected)
    assert gspo()(given).metrics["clip_fraction"].item() == 0.5


def gmpo(**changes: Any) -> GMPO:
    settings: dict[str, Any] = {"clip_low": LOW, "clip_high": HIGH, "kl_weight": 0.0, "kl": None}
    return GMPO(**{**settings, "aggregation": TokenMean(), **changes})


def test_gmpo_token_ratio_is_clipped_only_in_direction_of_advantage() -> None:
    better = rows([[2.0, -2.0, 0.1]], [[1.0] * 3])
    s = exp((HIGH - 2.0 + 0.1) / 3)
    assert gmpo()(better).loss.item() == pytest.approx(-s)
    assert_close(gradient(gmpo(), better), torch.tensor([[0.0, -s / 3, -s / 3]], dtype=torch.float64))
    worse = rows([[2.0, -2.0, 0.1]], [[-1.0] * 3])
    s = exp((2.0 - LOW + 0.1) / 3)
    assert gmpo()(worse).loss.item() == pytest.approx(s)
    assert_close(gradient(gmpo(), worse), torch.tensor([[s / 3, 0.0, s / 3]], dtype=torch.float64))


def test_step_credit_stays_on_its_tokens() -> None:
    of_gspo = gradient(gspo(), rows([[0.0, 0.0], [0.0, 0.0]], [[3.0, -1.0], [0.0, 2.0]]))
    assert_close(of_gspo, torch.tensor([[-3.0, 1.0], [0.0, -2.0]], dtype=torch.float64) / 4)
    of_gmpo = gradient(gmpo(), rows([[0.0, 0.0, 0.0]], [[3.0, -1.0, 0.0]]))
    assert_close(of_gmpo, torch.tensor([[-1.0, 1 / 3, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("objective", [gspo(), gmpo()])
def test_extreme_ratio_has_bounded_loss_and_zero_gradient(objective: GSPO | GMPO) -> None:
    given = rows([[90.0, 90.0]], [[-1.0, -1.0]])
    assert objective(given).loss.item() == pytest.approx(exp(10))
    assert not gradient(objective, given).any()
