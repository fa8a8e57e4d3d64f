"""Dr.GRPO and DAPO are GRPO with other settings: by hand, and as the code says it."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from contrastive_reasoning.objectives import (
    DAPO,
    GRPO,
    K3,
    ConstantLength,
    DrGRPO,
    ObjectiveInputs,
    TokenMean,
)

K3_BOUNDED = K3(max_log_ratio=20.0, max_value=10.0)


def inputs(ratios: list[list[float]], advantages: list[float], ref: float | None = None) -> ObjectiveInputs:
    """Rows of ratios, right-padded with 1; one advantage per row."""
    width = max(map(len, ratios))
    padded = torch.tensor([row + [1.0] * (width - len(row)) for row in ratios], dtype=torch.float64)
    log_probs = (padded.log() - 1).requires_grad_()
    return ObjectiveInputs(
        log_probs=log_probs,
        old_log_probs=torch.full_like(padded, -1.0),
        ref_log_probs=None if ref is None else torch.full_like(padded, ref),
        advantages=torch.tensor(advantages, dtype=torch.float64)[:, None].expand(padded.shape),
        mask=torch.arange(width) < torch.tensor([len(row) for row in ratios])[:, None],
    )


def dr_grpo(kl_weight: float = 0.0) -> DrGRPO:
    return DrGRPO(clip_low=0.2, clip_high=0.2, length=8, kl_weight=kl_weight, kl=K3_BOUNDED)


def test_dr_grpo_by_hand() -> None:
    """Two rows of 2 and 1 tokens: each token weighs 1 / (2 · 8), however long its row."""
    got = dr_grpo()(inputs([[1.1, 1.5], [0.5]], [1.0, -2.0])).loss.item()
    assert got == pytest.approx(-(1.1 + 1.2 - 2 * 0.8) / 16)


def test_length_buys_nothing_in_dr_grpo() -> None:
    """A token's gradient is the same in a short and a long row."""
    given = inputs([[1.0, 1.0, 1.0], [1.0]], [1.0, 1.0])
    gradient = torch.autograd.grad(dr_grpo()(given).loss, given.log_probs)[0]
    assert gradient[0, 0] == gradient[1, 0] == -1 / 16


def test_dr_grpo_has_the_kl_of_grpo() -> None:
    outputs = dr_grpo(kl_weight=0.1)(inputs([[1.0], [1.0]], [0.0, 0.0], ref=-1.5))
    expected = torch.tensor(-0.5).double().exp() + 0.5 - 1
    assert outputs.metrics["kl"].item() == pytest.approx(expected.item())
    assert outputs.loss.item() == pytest.approx(0.1 * expected.item() / 8)


def test_dapo_by_hand() -> None:
    """Every token weighs 1/3; a better token may rise to 1.28, a worse one fall to 0.8."""
    dapo = DAPO(clip_low=0.2, clip_high=0.28, dual_clip=None)
    got = dapo(inputs([[1.25, 1.5], [0.5]], [1.0, -2.0])).loss.item()
    assert got == pytest.approx(-(1.25 + 1.28 - 2 * 0.8) / 3)


def test_dapo_does_not_look_at_a_reference() -> None:
    dapo = DAPO(clip_low=0.2, clip_high=0.28, dual_clip=None)
    outputs = dapo(inputs([[1.25], [0.5]], [1.0, -2.0], ref=-5.0))
    assert outputs.loss == dapo(inputs([[1.25], [0.5]], [1.0, -2.0])).loss
    assert "kl" not in outputs.metrics


def test_which_grpo_they_are() -> None:
    clips = {"clip_low": 0.1, "clip_high": 0.3}
    assert DAPO(**clips, dual_clip=3.0).as_grpo() == GRPO(
        **clips, dual_clip=3.0, kl_weight=0.0, kl=None, aggregation=TokenMean()
    )
    assert DrGRPO(**clips, length=9, kl_weight=0.5, kl=K3_BOUNDED).as_grpo() == GRPO(
        **clips, dual_clip=None, kl_weight=0.5, kl=K3_BOUNDED, aggregation=ConstantLength(length=9)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_low": 1.0}, r"clip_low must lie in \[0, 1\), got 1.0"),
        ({"length": 0}, "length must be at least 1, got 0"),
        ({"kl_weight": -1.0}, "kl_weight must not be negative, got -1.0"),
    ],
)
def test_settings_are_checked_when_they_are_given(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DrGRPO(**{**asdict(dr_grpo()), "kl": None, **change})
    with pytest.raises(ValueError, match="dual_clip must be above 1"):
        DAPO(clip_low=0.2, clip_high=0.28, dual_clip=1.0)
