from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import (
    CISPO,
    GMPO,
    GSPO,
    K1,
    K2,
    K3,
    AbsoluteKL,
    Aggregation,
    ConstantLength,
    FullKL,
    Objective,
    ObjectiveInputs,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    TokenMean,
)
from contrastive_reasoning.objectives.aggregate import kl_per_token

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]).bool()
LOSSES = torch.rand(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
ROWS = [[value.item() for value, kept in zip(*pair, strict=True) if kept] for pair in zip(LOSSES, MASK, strict=True)]
WRITTEN = [row for row in ROWS if row]  # a rollout without a token is no rollout

CASES: list[tuple[Aggregation, Callable[[], float]]] = [
    (TokenMean(), lambda: sum(sum(row) for row in ROWS) / 6),
    (SeqMeanTokenMean(), lambda: sum(sum(row) / len(row) for row in WRITTEN) / 3),
    (SeqMeanTokenSum(), lambda: sum(sum(row) for row in WRITTEN) / 3),
    (ConstantLength(length=10), lambda: sum(sum(row) / 10 for row in WRITTEN) / 3),
]


@pytest.mark.parametrize(("aggregation", "expected"), CASES)
def test_against_loops(aggregation: Aggregation, expected: Callable[[], float]) -> None:
    weights = aggregation.weights(MASK, rows=3.0, tokens=6.0)
    assert (weights * LOSSES).sum().item() == pytest.approx(expected(), rel=1e-12)
    assert not weights[~MASK].any()


@pytest.mark.parametrize(("aggregation", "_"), CASES)
def test_a_row_weighs_the_same_in_every_split(aggregation: Aggregation, _: object) -> None:
    whole = aggregation.weights(MASK, rows=3.0, tokens=6.0)
    for row in range(4):
        assert torch.equal(aggregation.weights(MASK[row : row + 1], rows=3.0, tokens=6.0)[0], whole[row])


def test_length_is_checked() -> None:
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        ConstantLength(length=0)


WITH_KL: list[type[Any]] = [GSPO, GMPO, CISPO]


def objective(kind: type[Any], kl: K1 | FullKL | None, weight: float = 0.5) -> Objective:
    return kind(clip_low=0.2, clip_high=0.2, kl_weight=weight, kl=kl, aggregation=SeqMeanTokenMean())


@pytest.mark.parametrize("kind", WITH_KL)
@pytest.mark.parametrize("kl", [K1(), FullKL()])
def test_kl_is_added_with_its_weight(ragged, kind: type[Any], kl: K1 | FullKL) -> None:
    given: ObjectiveInputs = ragged(0, spread=0.1, per_token=False)
    given = replace(given, full_kl=torch.rand(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    plain, outputs = objective(kind, None)(given), objective(kind, kl)(given)
    divergence = given.full_kl if isinstance(kl, FullKL) else given.log_probs - given.ref_log_probs
    rows = [value[kept] for value, kept in zip(divergence.detach(), given.mask, strict=True) if kept.any()]
    expected = torch.stack([row.mean() for row in rows]).mean()
    assert_close(outputs.loss - plain.loss, 0.5 * expected)
    assert_close(outputs.metrics["kl"], torch.cat(rows).mean())
    assert "kl" not in plain.metrics


def test_full_kl_has_a_gradient_of_its_own(ragged) -> None:
    given: ObjectiveInputs = ragged(0, spread=0.1, per_token=False)
    full = torch.rand(5, 5, dtype=torch.float64, requires_grad=True)
    outputs = objective(GSPO, FullKL())(replace(given, ref_log_probs=None, full_kl=full))
    gradient = torch.autograd.grad(outputs.loss, full)[0]
    assert_close(gradient, 0.5 * SeqMeanTokenMean().weights(given.mask, rows=4.0, tokens=13.0))


def test_full_kl_outside_the_mask_is_ignored(ragged) -> None:
    given: ObjectiveInputs = ragged(0, spread=0.1, per_token=False)
    torn = torch.ones(5, 5, dtype=torch.float64).masked_fill(~given.mask, float("nan")).requires_grad_()
    loss = objective(GSPO, FullKL())(replace(given, full_kl=torn)).loss
    assert torch.autograd.grad(loss, torn)[0].isfinite().all()


def test_without_a_reference_there_is_no_kl_term(ragged) -> None:
    given: ObjectiveInputs = replace(ragged(0, spread=0.1, per_token=False), ref_log_probs=None)
    assert kl_per_token(None, given) is None
    assert kl_per_token(K1(), given) is None
    assert kl_per_token(FullKL(), given) is None


def test_a_forgotten_full_kl_is_said(ragged) -> None:
    with pytest.raises(ValueError, match="a KL over the whole vocabulary needs full_kl"):
        objective(GSPO, FullKL())(ragged(0, spread=0.1, per_token=False))


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


def test_bounds_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"max_value must be positive, got 0\.0"):
        K3(max_log_ratio=20.0, max_value=0.0)
