from __future__ import annotations

from math import exp
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import GMPO, TokenMean

LOW, HIGH = 0.3, 0.4


def gmpo(**changes: Any) -> GMPO:
    settings: dict[str, Any] = {"clip_low": LOW, "clip_high": HIGH, "kl_weight": 0.0, "kl": None}
    return GMPO(**{**settings, "aggregation": TokenMean(), **changes})


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
