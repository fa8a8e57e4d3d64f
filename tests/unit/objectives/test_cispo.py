from __future__ import annotations

from math import log
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import CISPO, TokenMean
from tests.unit.objectives.objective_kit import gradient, rows

HIGH = 0.5


def cispo(**changes: Any) -> CISPO:
    settings: dict[str, Any] = {"clip_low": None, "clip_high": HIGH, "kl_weight": 0.0, "kl": None}
    return CISPO(**{**settings, "aggregation": TokenMean(), **changes})


RATIOS = [[log(4.0), log(0.1), log(4.0), log(0.1)]]


def test_clipped_tokens_keep_gradient() -> None:
    given = rows(RATIOS, [[1.0, 1.0, -1.0, -1.0]])
    assert_close(gradient(cispo(), given), torch.tensor([[-1.5, -0.1, 1.5, 0.1]], dtype=torch.float64) / 4)
    assert_close(gradient(cispo(clip_low=0.2), given)[0, 1], torch.tensor(-0.8 / 4, dtype=torch.float64))


def test_metrics_use_ratio_before_clipping() -> None:
    metrics = cispo()(rows(RATIOS, [[1.0, 1.0, -1.0, 0.0]])).metrics
    assert metrics["clip_fraction"].item() == 0.5
    assert metrics["ratio_mean"].item() == pytest.approx(8.2 / 4)
    assert metrics["ratio_max"].item() == pytest.approx(4.0)
    assert not any(value.requires_grad for value in metrics.values())
