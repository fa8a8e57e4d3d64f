from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.objectives.ratio import sequence_weights, token_log_ratio, token_ratio, token_weights

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


Weights = Callable[..., Tensor]
LENGTHS = [5, 1, 3, 0, 4]
CORRECTED = torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def drawn(spread: float) -> tuple[Tensor, Tensor]:
    """Log-probs of trainer and engine in float64; what is masked out would be nan."""
    generator = torch.Generator().manual_seed(0)
    old, noise = torch.randn(2, 5, 5, generator=generator, dtype=torch.float64)
    return old.masked_fill(~CORRECTED, math.nan), (old + spread * noise).masked_fill(~CORRECTED, math.nan)


@pytest.mark.parametrize("cap", [1.0, 1.3, 2.0, 1e9])
def test_token_weights_are_those_of_a_loop(cap: float) -> None:
    old, engine = drawn(spread=0.8)
    expected = torch.ones(5, 5, dtype=torch.float64)
    for i, length in enumerate(LENGTHS):
        for t in range(length):
            expected[i, t] = min(math.exp(old[i, t]) / math.exp(engine[i, t]), cap)
    assert_close(token_weights(old, engine, CORRECTED, cap=cap), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("cap", [1.0, 1.3, 2.0, 1e9])
def test_sequence_weights_are_those_of_a_loop(cap: float) -> None:
    old, engine = drawn(spread=0.8)
    expected = torch.ones(5, 5, dtype=torch.float64)
    for i, length in enumerate(LENGTHS):
        ratio = 1.0
        for t in range(length):
            ratio *= math.exp(old[i, t]) / math.exp(engine[i, t])
        expected[i, :length] = min(ratio, cap)
    assert_close(sequence_weights(old, engine, CORRECTED, cap=cap), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("weights", [token_weights, sequence_weights])
def test_an_engine_without_mismatch_weighs_exactly_one(weights: Weights) -> None:
    old, _ = drawn(spread=0.0)
    assert torch.equal(weights(old, old.clone(), CORRECTED, cap=1.0), torch.ones(5, 5, dtype=torch.float64))


@pytest.mark.parametrize("weights", [token_weights, sequence_weights])
def test_extremes_stay_finite_and_below_the_cap(weights: Weights) -> None:
    old, engine = torch.tensor([[0.0, -1e4, 0.0]]), torch.tensor([[-1e4, 0.0, 0.0]])
    found = weights(old, engine, torch.tensor([[True, True, True]]), cap=3.0)
    assert found.isfinite().all()
    assert found.max() <= 3.0
    assert weights(old[:, :1], engine[:, :1], torch.tensor([[True]]), cap=3.0).item() == pytest.approx(3.0, abs=1e-6)


@pytest.mark.parametrize("weights", [token_weights, sequence_weights])
def test_weights_are_constants_for_the_gradient(weights: Weights) -> None:
    old, engine = drawn(spread=0.5)
    assert not weights(old.requires_grad_(), engine.requires_grad_(), CORRECTED, cap=2.0).requires_grad


def test_untruncated_token_weights_turn_means_under_the_engine_into_means_under_the_trainer() -> None:
    pi, mu = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.2, 0.6]).double()
    value = torch.tensor([1.0, -2.0, 5.0]).double()
    found = token_weights(pi.log()[None], mu.log()[None], torch.ones(1, 3, dtype=torch.bool), cap=1e9)[0]
    assert_close((mu * found * value).sum(), (pi * value).sum())


def test_a_cap_below_one_is_refused() -> None:
    old, engine = drawn(spread=0.1)
    for weights in (token_weights, sequence_weights):
        with pytest.raises(ValueError, match=r"cap must be at least 1, got 0\.9"):
            weights(old, engine, CORRECTED, cap=0.9)
