from __future__ import annotations

from math import log

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.objectives import (
    DAPO,
    GRPO,
    K3,
    ConstantLength,
    DrGRPO,
    ObjectiveInputs,
    TokenMean,
)


def grpo(dual_clip: float | None = None) -> GRPO:
    return GRPO(
        clip_low=0.2,
        clip_high=0.28,
        dual_clip=dual_clip,
        kl_weight=0.0,
        kl=None,
        aggregation=TokenMean(),
    )


def inputs(ratios: list[float], advantages: list[float]) -> ObjectiveInputs:
    log_probs = torch.tensor([[log(ratio) - 1 for ratio in ratios]], dtype=torch.float64, requires_grad=True)
    return ObjectiveInputs(
        log_probs=log_probs,
        old_log_probs=torch.full_like(log_probs, -1.0),
        ref_log_probs=None,
        advantages=torch.tensor([advantages], dtype=torch.float64),
        mask=torch.ones(1, len(ratios), dtype=torch.bool),
    )


def gradient(objective: GRPO, given: ObjectiveInputs) -> Tensor:
    return torch.autograd.grad(objective(given).loss, given.log_probs)[0]


RATIOS = [0.5, 0.9, 1.1, 1.5, 0.5, 0.9, 1.1, 1.5]
ADVANTAGES = [2.0] * 4 + [-2.0] * 4


def test_only_steps_back_have_a_gradient_beyond_the_clips() -> None:
    got = gradient(grpo(), inputs(RATIOS, ADVANTAGES))[0]
    expected = [-r * a / 8 for r, a in zip(RATIOS, ADVANTAGES, strict=True)]
    expected[3] = expected[4] = 0.0  # better and already likelier; worse and already less likely
    assert_close(got, torch.tensor(expected, dtype=torch.float64))


def test_metrics() -> None:
    metrics = grpo()(inputs(RATIOS, ADVANTAGES)).metrics
    assert metrics["clip_fraction"].item() == 2 / 8
    assert metrics["ratio_mean"].item() == pytest.approx(1.0)
    assert metrics["ratio_max"].item() == pytest.approx(1.5)
    assert metrics["approx_kl"].item() == pytest.approx(-sum(map(log, RATIOS)) / 8)
    assert not any(value.requires_grad for value in metrics.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_low": 1.0}, r"clip_low must lie in \[0, 1\), got 1.0"),
        ({"clip_high": -0.1}, "clip_high must not be negative, got -0.1"),
        ({"dual_clip": 0.5}, r"dual_clip must be above 1 \(or null\), got 0.5"),
        ({"kl_weight": -1.0}, "kl_weight must not be negative, got -1.0"),
    ],
)
def test_settings_are_checked(change: dict[str, float], message: str) -> None:
    settings = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "kl_weight": 0.0} | change
    with pytest.raises(ValueError, match=message):
        GRPO(**settings, kl=None, aggregation=TokenMean())


K3_BOUNDED = K3(max_log_ratio=20.0, max_value=10.0)


def rows_of(ratios: list[list[float]], advantages: list[float]) -> ObjectiveInputs:
    """Rows of ratios, right-padded with 1; one advantage per row."""
    width = max(map(len, ratios))
    padded = torch.tensor([row + [1.0] * (width - len(row)) for row in ratios], dtype=torch.float64)
    log_probs = (padded.log() - 1).requires_grad_()
    return ObjectiveInputs(
        log_probs=log_probs,
        old_log_probs=torch.full_like(padded, -1.0),
        ref_log_probs=None,
        advantages=torch.tensor(advantages, dtype=torch.float64)[:, None].expand(padded.shape),
        mask=torch.arange(width) < torch.tensor([len(row) for row in ratios])[:, None],
    )


def test_length_buys_nothing_in_dr_grpo() -> None:
    """Each token weighs 1 / (2 · 8), and has the same gradient in a short and a long row."""
    dr_grpo = DrGRPO(clip_low=0.2, clip_high=0.2, length=8, kl_weight=0.0, kl=None)
    assert dr_grpo(rows_of([[1.1, 1.5], [0.5]], [1.0, -2.0])).loss.item() == pytest.approx(-(1.1 + 1.2 - 2 * 0.8) / 16)
    first = gradient(dr_grpo, rows_of([[1.0, 1.0, 1.0], [1.0]], [1.0, 1.0]))
    assert first[0, 0] == first[1, 0] == -1 / 16


def test_which_grpo_they_are() -> None:
    clips = {"clip_low": 0.1, "clip_high": 0.3}
    assert DAPO(**clips, dual_clip=3.0) == GRPO(**clips, dual_clip=3.0, kl_weight=0.0, kl=None, aggregation=TokenMean())
    assert DrGRPO(**clips, length=9, kl_weight=0.5, kl=K3_BOUNDED) == GRPO(
        **clips, dual_clip=None, kl_weight=0.5, kl=K3_BOUNDED, aggregation=ConstantLength(length=9)
    )
