from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import DAPO, GRPO, K3, ConstantLength, DrGRPO, TokenMean
from tests.unit.objectives.objective_kit import gradient, rows

RATIOS = [0.5, 0.9, 1.1, 1.5, 0.5, 0.9, 1.1, 1.5]
ADVANTAGES = [2.0] * 4 + [-1.0] * 4
CLIPS = {"clip_low": 0.2, "clip_high": 0.28}
WIDER = DAPO(**CLIPS, dual_clip=None)
K3_BOUNDED = K3(max_log_ratio=20.0, max_value=10.0)


def test_clip_removes_gradient_only_in_direction_of_advantage() -> None:
    given = rows([[log(ratio) for ratio in RATIOS]], [ADVANTAGES])
    expected = [-r * a / 8 for r, a in zip(RATIOS, ADVANTAGES, strict=True)]
    expected[3] = expected[4] = 0.0  # A > 0 and already likelier; A < 0 and already less likely
    assert_close(gradient(WIDER, given)[0], torch.tensor(expected, dtype=torch.float64))
    kept = [min(r * a, min(max(r, 0.8), 1.28) * a) for r, a in zip(RATIOS, ADVANTAGES, strict=True)]
    assert WIDER(given).loss.item() == pytest.approx(-sum(kept) / 8)
    metrics = WIDER(given).metrics
    assert metrics["clip_fraction"].item() == 2 / 8
    assert metrics["ratio_mean"].item() == pytest.approx(1.0)
    assert metrics["ratio_max"].item() == pytest.approx(1.5)
    assert metrics["approx_kl"].item() == pytest.approx(-sum(map(log, RATIOS)) / 8)
    assert not any(value.requires_grad for value in metrics.values())


def test_dr_grpo_divides_by_constant_length() -> None:
    """Each token has the weight 1 / (2 · 8) in every row, also in a shorter one."""
    dr_grpo = DrGRPO(clip_low=0.2, clip_high=0.2, length=8, kl_weight=0.0, kl=None)
    given = rows([[log(1.1), log(1.5)], [log(0.5), 0.0]], [[1.0, 1.0], [-2.0, 5.0]])
    given = replace(given, mask=torch.tensor([[True, True], [True, False]]))
    assert dr_grpo(given).loss.item() == pytest.approx(-(1.1 + 1.2 - 2 * 0.8) / 16)
    assert gradient(dr_grpo, given)[0, 0].item() == pytest.approx(-1.1 / 16)
    assert gradient(dr_grpo, given)[1].tolist() == pytest.approx([0.0, 0.0])  # clipped, and masked


def test_dapo_and_dr_grpo_equal_grpo_with_their_settings() -> None:
    assert DAPO(**CLIPS, dual_clip=3.0) == GRPO(**CLIPS, dual_clip=3.0, kl_weight=0.0, kl=None, aggregation=TokenMean())
    assert DrGRPO(**CLIPS, length=9, kl_weight=0.5, kl=K3_BOUNDED) == GRPO(
        **CLIPS, dual_clip=None, kl_weight=0.5, kl=K3_BOUNDED, aggregation=ConstantLength(length=9)
    )


@pytest.mark.parametrize(
    "change", [{"clip_low": 1.0}, {"clip_high": -0.1}, {"dual_clip": 0.5}, {"kl_weight": -1.0}, {"kl_weight": 0.1}]
)
def test_settings_out_of_range_raise(change: dict[str, float]) -> None:
    ((name, value),) = change.items()
    settings = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "kl_weight": 0.0} | change
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        GRPO(**settings, kl=None, aggregation=TokenMean())
