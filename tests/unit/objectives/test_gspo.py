from __future__ import annotations

from math import exp
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import GSPO, SeqMeanTokenMean

LOW, HIGH = 0.1, 0.15


def gspo(**changes: Any) -> GSPO:
    settings: dict[str, Any] = {"clip_low": LOW, "clip_high": HIGH, "kl_weight": 0.0, "kl": None}
    return GSPO(**{**settings, "aggregation": SeqMeanTokenMean(), **changes})


def test_clipping_removes_gradient_of_whole_completions_only(rows, gradient) -> None:
    """The first row's mean log-ratio is 0.05, although single tokens are far from it.

    The second row's is 0.4, with A > 0, so the row is clipped.
    """
    given = rows([[0.9, -0.8], [0.4, 0.4]], [[1.0, 1.0], [1.0, 1.0]])
    expected = torch.tensor([[-exp(0.05) / 4] * 2, [0.0, 0.0]], dtype=torch.float64)
    assert_close(gradient(gspo(), given), expected)
    assert gspo()(given).metrics["clip_fraction"].item() == 0.5


def test_step_credit_stays_on_its_tokens(rows, gradient) -> None:
    got = gradient(gspo(), rows([[0.0, 0.0], [0.0, 0.0]], [[3.0, -1.0], [0.0, 2.0]]))
    assert_close(got, torch.tensor([[-3.0, 1.0], [0.0, -2.0]], dtype=torch.float64) / 4)


def test_extreme_ratio_has_bounded_loss_and_zero_gradient(rows, gradient) -> None:
    given = rows([[90.0, 90.0], [0.0, 0.0]], [[-1.0, -1.0], [0.0, 0.0]])
    assert gspo()(given).loss.item() == pytest.approx(exp(10) / 2)
    assert not gradient(gspo(), given)[0].any()
