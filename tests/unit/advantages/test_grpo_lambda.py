from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import GroupRelative, GRPOLambda, MeanCentred
from contrastive_reasoning.rewards import Credit

LENGTHS = [6, 3, 1, 5]
MASK = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
CREDIT = Credit(outcome=torch.tensor([1.0, 0.0, 0.25, 0.5], dtype=torch.float64), parts={})


def advantage(decay: float = 0.5, floor: float | None = None) -> GRPOLambda:
    return GRPOLambda(outcome=GroupRelative(normalise_std=True, epsilon=1e-6), decay=decay, floor=floor)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("floor", [None, -0.1])
def test_grpo_lambda_matches_sum_for_every_token(decay: float, floor: float | None) -> None:
    outcome = GroupRelative(normalise_std=True, epsilon=1e-6)(CREDIT, MASK, 4)[:, 0].tolist()
    expected = torch.zeros(MASK.shape, dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        value = outcome[row] if floor is None else max(outcome[row], floor)
        for token in range(length):
            expected[row, token] = sum(decay ** (later - token) * value for later in range(token, length))
    assert_close(advantage(decay, floor)(CREDIT, MASK, 4), expected, rtol=1e-12, atol=1e-12)


def test_grpo_lambda_gradient_equals_that_of_traces_in_ratio() -> None:
    """The policy still equals the one that sampled; autograd runs through the accumulated, clipped ratio."""
    decay, start = 0.8, torch.randn(MASK.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    outcome = MeanCentred()(CREDIT, MASK, 4)
    by_ratio = start.clone().requires_grad_()
    surrogate = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        for t in range(length):
            changes = [decay ** (t - k) * (by_ratio[row, k] - start[row, k]) for k in range(t + 1)]
            ratio = torch.stack(changes).sum().exp()
            surrogate = surrogate + torch.minimum(ratio * outcome[row, t], ratio.clamp(0.8, 1.2) * outcome[row, t])
    surrogate.backward()
    got = GRPOLambda(outcome=MeanCentred(), decay=decay, floor=None)(CREDIT, MASK, 4)
    assert by_ratio.grad is not None
    assert_close(got, by_ratio.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("setting", [{"decay": -0.1}, {"decay": 1.1}, {"decay": float("nan")}, {"floor": 0.1}])
def test_settings_out_of_range_raise(setting: dict[str, float]) -> None:
    ((name, value),) = setting.items()
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        advantage(**setting)
