from __future__ import annotations

from math import cos, pi
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from lightning_modules.optim import AdamW, clip_by_norm


def adamw(**changes: Any) -> AdamW:
    settings: dict[str, Any] = {
        "learning_rate": 0.5,
        "betas": [0.9, 0.95],
        "epsilon": 1e-8,
        "weight_decay": 0.1,
        "warmup_steps": 4,
        "schedule": "constant",
        "total_steps": 14,
    }
    return AdamW(**settings | changes)


def test_schedules_match_hand_computed_values() -> None:
    warm = [0.25, 0.5, 0.75, 1.0]
    assert [adamw().scale(step) for step in range(6)] == [*warm, 1.0, 1.0]
    assert [adamw(schedule="linear").scale(step) for step in range(16)] == pytest.approx(
        [*warm, *[1 - i / 10 for i in range(11)], 0.0]
    )
    assert [adamw(schedule="cosine").scale(step) for step in range(16)] == pytest.approx(
        [*warm, *[(1 + cos(pi * i / 10)) / 2 for i in range(11)], 0.0]
    )
    assert adamw(warmup_steps=0, total_steps=None).scale(0) == 1.0


def test_warmup_below_one_is_a_share_of_total_steps_rounded_up() -> None:
    shared, counted = adamw(warmup_steps=0.25, schedule="cosine"), adamw(warmup_steps=4, schedule="cosine")
    assert [shared.scale(step) for step in range(16)] == [counted.scale(step) for step in range(16)]
    assert adamw(warmup_steps=0.1, total_steps=2, schedule="cosine").scale(0) == 1.0
    for total in (100, 200, 1000):
        for percent in range(1, 100):
            made = adamw(warmup_steps=percent / 100, total_steps=total, schedule="constant")
            assert made.warmup_steps == percent * total // 100
    assert adamw(warmup_steps=0.07, total_steps=101).warmup_steps == 8
    with pytest.raises(ValueError, match=r"warmup_steps=0\.1.*total_steps"):
        adamw(warmup_steps=0.1, total_steps=None)


def test_fused_step_equals_plain_step_and_leaves_frozen_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    start, *gradients = torch.randn(21, 1000, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    fused = adamw(learning_rate=1e-3)([ours, nn.Parameter(torch.ones(1), requires_grad=False)])
    plain = torch.optim.AdamW([theirs], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    for gradient in gradients:
        for parameter, optimizer in ((ours, fused), (theirs, plain)):
            parameter.grad = gradient.clone()
            optimizer.step()
    (group,) = fused.param_groups
    assert group["fused"] is True
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.95), 1e-8, 0.1)
    assert len(group["params"]) == 1
    assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert adamw().set_learning_rate(fused, 1) == group["lr"] == 0.25


def test_adamw_with_meta_weights_is_not_fused() -> None:
    made = adamw()([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, device="meta"))])
    assert made.param_groups[0]["fused"] is None


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"schedule": "cosin"}, "schedule.*'cosin'"),
        *[({"warmup_steps": value}, f"warmup_steps .* {value}") for value in (-1, -0.5, 2.5, float("nan"))],
        *[({"betas": value}, "betas.*0.9") for value in ([0.9], [0.9, 0.99, 0.999], [0.9, 1.0])],
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"schedule": "linear", "total_steps": None}, "schedule=linear.*total_steps.*warmup_steps"),
        ({"schedule": "cosine", "total_steps": 4}, r"total_steps.*warmup_steps \(4\).*4"),
    ],
)
def test_adamw_rejects_invalid_settings(setting: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        adamw(**setting)


def with_gradient(values: list[float]) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(len(values)))
    parameter.grad = torch.tensor(values)
    return parameter


def test_clip_by_norm_uses_joint_norm() -> None:
    parameters = [with_gradient([3.0]), with_gradient([4.0]), nn.Parameter(torch.zeros(1))]
    assert clip_by_norm(parameters, None).item() == 5.0
    assert parameters[0].grad is not None
    assert parameters[0].grad.item() == 3.0
    assert clip_by_norm(parameters, 1.0).item() == 5.0
    assert_close(parameters[0].grad, torch.tensor([0.6]), rtol=1e-4, atol=0)


def test_clip_by_norm_removes_non_finite_gradients() -> None:
    broken = [with_gradient([1.0, float("nan")]), with_gradient([1.0])]
    assert clip_by_norm(broken, 1.0).isnan()
    assert [parameter.grad for parameter in broken] == [None, None]
