from __future__ import annotations

from math import exp

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import K1, K2, K3, AbsoluteKL


def test_values() -> None:
    d = 0.3
    log_probs, ref = torch.tensor([[-1.0]]).double(), torch.tensor([[-1.0 - d]]).double()
    assert K1()(log_probs, ref).item() == pytest.approx(d)
    assert K2()(log_probs, ref).item() == pytest.approx(d * d / 2)
    assert K3(max_log_ratio=20.0, max_value=10.0)(log_probs, ref).item() == pytest.approx(exp(-d) + d - 1)
    assert AbsoluteKL()(log_probs, ref).item() == pytest.approx(d)


def test_estimators_agree_with_the_exact_kl() -> None:
    """E over π of k1 and k3 is KL(π ‖ ref); k2's is near it for near policies."""
    logits = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.1
    policy, ref = logits.log_softmax(dim=1).split(1)
    exact = (policy.exp() * (policy - ref)).sum()
    for estimator in (K1(), K3(max_log_ratio=20.0, max_value=10.0)):
        assert_close((policy.exp() * estimator(policy, ref)).sum(), exact)
    assert_close((policy.exp() * K2()(policy, ref)).sum(), exact, rtol=0.1, atol=0)


def test_k2_has_the_gradient_of_the_kl_on_policy() -> None:
    logits = torch.randn(2, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    free, ref = logits[:1].clone().requires_grad_(), logits[1:].log_softmax(dim=1)
    policy = free.log_softmax(dim=1)
    expected = torch.autograd.grad((policy.exp() * (policy - ref)).sum(), free, retain_graph=True)[0]
    sampled = (policy.detach().exp() * K2()(policy, ref)).sum()
    assert_close(torch.autograd.grad(sampled, free)[0], expected)


def test_k3_is_bounded() -> None:
    far = K3(max_log_ratio=20.0, max_value=10.0)(torch.tensor([[-80.0, 0.0]]), torch.tensor([[0.0, -80.0]]))
    assert_close(far, torch.tensor([[10.0, 10.0]]))


def test_bounds_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"max_value must be positive, got 0\.0"):
        K3(max_log_ratio=20.0, max_value=0.0)
