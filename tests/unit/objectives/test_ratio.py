from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.objectives import Correction, SequenceCorrection, TokenCorrection
from contrastive_reasoning.objectives.ratio import token_log_ratio


def test_token_log_ratio_is_bounded_at_extremes() -> None:
    new, old = torch.tensor([[0.0, -1e6, 0.0]]), torch.tensor([[-1e6, 0.0, 0.0]])
    log_ratio = token_log_ratio(new, old, torch.ones(1, 3, dtype=torch.bool))
    assert log_ratio.tolist() == [[20.0, -20.0, 0.0]]
    assert log_ratio.exp().isfinite().all()


LENGTHS = [5, 1, 3, 0, 4]
CORRECTED = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
KINDS: list[Callable[..., Correction]] = [TokenCorrection, SequenceCorrection]


def random_log_probs(spread: float) -> tuple[Tensor, Tensor]:
    """Returns log-probs of trainer and engine in float64, nan outside the mask."""
    generator = torch.Generator().manual_seed(0)
    old, noise = torch.randn(2, 5, 5, generator=generator, dtype=torch.float64)
    return old.masked_fill(~CORRECTED, math.nan), (old + spread * noise).masked_fill(~CORRECTED, math.nan)


@pytest.mark.parametrize("cap", [1.0, 1.3, 1e9])
def test_correction_weights_match_loop(cap: float) -> None:
    old, engine = random_log_probs(spread=0.8)
    by_token, by_row = torch.ones(2, 5, 5, dtype=torch.float64)
    for i, length in enumerate(LENGTHS):
        ratio = 1.0
        for t in range(length):
            by_token[i, t] = min(math.exp(old[i, t]) / math.exp(engine[i, t]), cap)
            ratio *= math.exp(old[i, t]) / math.exp(engine[i, t])
        by_row[i, :length] = min(ratio, cap)
    for kind, expected in zip(KINDS, (by_token, by_row), strict=True):
        found = kind(cap=cap)(old.requires_grad_(), engine.requires_grad_(), CORRECTED)
        assert_close(found, expected, atol=1e-12, rtol=1e-12)
        assert not found.requires_grad, "constants for the gradient"


@pytest.mark.parametrize("kind", KINDS)
def test_correction_weights_at_extremes_are_finite_and_capped(kind: Callable[..., Correction]) -> None:
    old, _ = random_log_probs(spread=0.0)
    assert torch.equal(kind(cap=1.0)(old, old.clone(), CORRECTED), torch.ones(5, 5, dtype=torch.float64))
    old, engine = torch.tensor([[0.0, -1e4, 0.0]]), torch.tensor([[-1e4, 0.0, 0.0]])
    found = kind(cap=3.0)(old, engine, torch.tensor([[True, True, True]]))
    assert found.isfinite().all()
    assert found.max() <= 3.0
    assert kind(cap=3.0)(old[:, :1], engine[:, :1], torch.tensor([[True]])).item() == pytest.approx(3.0, abs=1e-6)
    with pytest.raises(ValueError, match=r"cap.*0\.9"):
        kind(cap=0.9)
