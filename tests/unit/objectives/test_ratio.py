from __future__ import annotations

import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives.ratio import token_log_ratio, token_ratio

MASK = torch.tensor([[True, True, False]])


def test_ratio() -> None:
    new, old = torch.tensor([[-1.0, -2.0, -9.0]]), torch.tensor([[-1.5, -2.0, -1.0]])
    assert_close(token_ratio(new, old, MASK), torch.tensor([[0.5, 0.0, 0.0]]).exp())


def test_what_is_masked_cannot_harm() -> None:
    new = torch.tensor([[-1.0, -2.0, float("nan")]], requires_grad=True)
    ratio = token_ratio(new, torch.tensor([[-1.0, -2.0, float("-inf")]]), MASK)
    ratio.sum().backward()
    assert_close(ratio, torch.ones(1, 3))
    assert new.grad is not None
    assert_close(new.grad, torch.tensor([[1.0, 1.0, 0.0]]))


def test_extremes_stay_finite() -> None:
    log_ratio = token_log_ratio(torch.tensor([[0.0, -1e6, 0.0]]), torch.tensor([[-1e6, 0.0, 0.0]]), MASK)
    assert log_ratio.tolist() == [[20.0, -20.0, 0.0]]
    assert log_ratio.exp().isfinite().all()
