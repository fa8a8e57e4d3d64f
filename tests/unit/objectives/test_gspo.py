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


def test_every_token_of_a_kept_completion_has_a_gradient_and_none_of_a_cut_one(rows, gradient) -> None:
    """The first row's mean is 0.05 although a token of its own is far off; the second's is 0.4: better and likelier."""
    given = rows([[0.9, -0.8], [0.4, 0.4]], [[1.0, 1.0], [1.0, 1.0]])
    expected = torch.tensor([[-exp(0.05) / 4] * 2, [0.0, 0.0]], dtype=torch.float64)
    assert_close(gradient(gspo(), given), expected)
    assert gspo()(given).metrics["clip_fraction"].item() == 0.5


def test_credit_of_a_step_stays_on_its_tokens(rows, gradient) -> None:
    got = gradient(gspo(), rows([[0.0, 0.0], [0.0, 0.0]], [[3.0, -1.0], [0.0, 2.0]]))
    assert_close(got, torch.tensor([[-3.0, 1.0], [0.0, -2.0]], dtype=torch.float64) / 4)


def test_a_completion_that_ran_away_is_bounded(rows, gradient) -> None:
    given = rows([[90.0, 90.0], [0.0, 0.0]], [[-1.0, -1.0], [0.0, 0.0]])
    assert gspo()(given).loss.item() == pytest.approx(exp(10) / 2)
    assert not gradient(gspo(), given)[0].any()
