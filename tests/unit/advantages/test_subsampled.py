"""Subsampled: inclusion probabilities by bisection, how often each row is drawn, the mean, and the saved state."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import (
    Advantage,
    GroupRelative,
    GRPOLambda,
    Potential,
    Process,
    StatefulAdvantage,
    Subsampled,
    Survival,
    TrustGate,
    VinePPO,
)
from contrastive_reasoning.advantages.subsampled import inclusion, systematic
from contrastive_reasoning.rewards import Credit, StepCredit

OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)
MASK = torch.ones(8, 3, dtype=torch.bool)
OFFSETS = 4000


def credit() -> Credit:
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    steps = [[StepCredit(0, 1, value, depth=2)] for value in (0.1, 0.7, 0.3, 0.9, 0.2, 0.2, 0.5, 0.4)]
    return Credit(outcome=rewards, parts={}, steps=steps, metrics={"steps/auroc_siblings": 0.9})


def subsampled(advantage: Advantage = OUTCOME, **changes: Any) -> Subsampled:
    return Subsampled(**{"advantage": advantage, "share": 0.5, "seed": 3} | changes)


def weights(count: int, seed: int) -> torch.Tensor:
    drawn = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 4
    drawn[::5] = 0.0
    return drawn


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("expected", [0.8, 3.0, 7.3, 15.0])
def test_inclusion_matches_bisection(seed: int, expected: float) -> None:
    drawn = weights(24, seed)
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (middle * drawn).clamp(max=1).sum() < expected else (low, middle)
    got = inclusion(drawn, expected=expected)
    assert_close(got, (high * drawn).clamp(max=1))
    assert got.sum().item() == pytest.approx(expected)


@pytest.mark.parametrize("expected", [19.0, 19.5, 24.0])
def test_inclusion_keeps_all_rows_with_weight_if_few(expected: float) -> None:
    drawn = weights(24, 0)
    assert torch.equal(inclusion(drawn, expected=expected), (drawn > 0).double())


def test_systematic_draws_each_row_with_its_probability() -> None:
    chances = inclusion(weights(24, 0), expected=7.3)
    draws = torch.stack([systematic(chances, offset=(k + 0.5) / OFFSETS) for k in range(OFFSETS)])
    assert_close(draws.double().mean(dim=0), chances, atol=2 / OFFSETS, rtol=0)
    assert set(draws.sum(dim=1).tolist()) == {7, 8}
    assert draws[:, chances == 1].all()
    assert not draws[:, chances == 0].any()


def test_mean_over_offsets_equals_full_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean is over all offsets of the systematic draw, which are uniform."""
    full, places = Process(outcome=OUTCOME, weight=0.5, epsilon=1e-6)(credit(), MASK, 4), 500
    given, total = credit(), torch.zeros(8, 3, dtype=torch.float64)
    draw = iter((k + 0.5) / places for k in range(places))
    monkeypatch.setattr("contrastive_reasoning.advantages.subsampled.fixed_draw", lambda *_: next(draw))
    for _ in range(places):
        found = subsampled(lambda *_: full)(given, MASK, 4)
        assert (found != 0).any(dim=1).sum() == 4
        total += found
    assert_close(total / places, full, atol=5e-3, rtol=0)


def test_share_one_is_bitwise_equal_to_advantage() -> None:
    assert torch.equal(subsampled(share=1.0)(credit(), MASK, 4), OUTCOME(credit(), MASK, 4))


def test_batch_with_zero_advantages_stays_zero() -> None:
    nothing = Credit(outcome=torch.zeros(8), parts={})
    made = subsampled()
    assert not made(nothing, MASK, 4).any()
    assert made.metrics == {"subsample/kept": 0.0}


def test_resumed_advantage_is_bitwise_equal_to_uninterrupted() -> None:
    """The state contains that of the inner advantage."""

    def made() -> Subsampled:
        process = Process(outcome=OUTCOME, weight=0.5, epsilon=1e-6)
        return subsampled(TrustGate(advantage=process, window=2, floor=0.6, span=0.3, total_steps=10**6))

    whole, first, second = made(), made(), made()
    for _ in range(3):
        whole(credit(), MASK, 4)
        first(credit(), MASK, 4)
    stream = io.BytesIO()
    torch.save(first.state_dict(), stream)
    stream.seek(0)
    second.load_state_dict(torch.load(stream, weights_only=True))
    assert second.metrics == whole.metrics
    assert second.metrics.keys() == {"gate/weight", "gate/trust", "subsample/kept"}
    for _ in range(3):
        assert torch.equal(second(credit(), MASK, 4), whole(credit(), MASK, 4))
    assert isinstance(second, StatefulAdvantage)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_share_out_of_range_raises(share: float) -> None:
    with pytest.raises(ValueError, match=f"share.*{share}"):
        subsampled(share=share)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Process, {"weight": 0.5, "epsilon": 1e-6}),
        (Survival, {"weight": 0.5, "epsilon": 1e-6}),
        (Potential, {"weight": 0.5, "decay": 1.0, "scale": 1.0}),
        (GRPOLambda, {"decay": 0.9, "floor": None}),
        (VinePPO, {"weight": 0.5}),
    ],
)
def test_stateless_advantage_rejects_stateful_outcome(kind: Callable[..., Advantage], settings: dict[str, Any]) -> None:
    """No checkpoint would contain the inner state."""
    kind(outcome=OUTCOME, **settings)
    with pytest.raises(ValueError, match=f"Subsampled.*{kind.__name__}"):
        kind(outcome=subsampled(), **settings)
