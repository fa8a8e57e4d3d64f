from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import (
    CISPO,
    GMPO,
    GSPO,
    K1,
    K3,
    Aggregation,
    ConstantLength,
    FullKL,
    Objective,
    ObjectiveInputs,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    TokenMean,
)
from contrastive_reasoning.objectives.base import kl_per_token

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]).bool()


@pytest.mark.parametrize("aggregation", [TokenMean(), SeqMeanTokenMean(), SeqMeanTokenSum(), ConstantLength(length=10)])
def test_token_weights_do_not_depend_on_split_into_rows(aggregation: Aggregation) -> None:
    whole = aggregation.weights(MASK, rows=3.0, tokens=6.0)
    for row in range(4):
        assert torch.equal(aggregation.weights(MASK[row : row + 1], rows=3.0, tokens=6.0)[0], whole[row])


def ragged() -> ObjectiveInputs:
    """Five rollouts, one of them empty, with ratios around 1."""
    generator = torch.Generator().manual_seed(0)
    old, noise, ref, advantages, kl = torch.randn(5, 5, 5, generator=generator, dtype=torch.float64)
    return ObjectiveInputs(
        log_probs=(old + 0.1 * noise).requires_grad_(),
        old_log_probs=old,
        ref_log_probs=ref,
        advantages=advantages[:, :1].expand(5, 5),
        mask=torch.arange(5) < torch.tensor([5, 1, 3, 0, 4])[:, None],
        full_kl=kl.abs(),
    )


WITH_KL: list[type[Any]] = [GSPO, GMPO, CISPO]


def objective(kind: type[Any], kl: K1 | FullKL | None, weight: float = 0.5) -> Objective:
    return kind(clip_low=0.2, clip_high=0.2, kl_weight=weight, kl=kl, aggregation=SeqMeanTokenMean())


@pytest.mark.parametrize("kind", WITH_KL)
@pytest.mark.parametrize("kl", [K1(), FullKL()])
def test_kl_is_added_with_kl_weight(kind: type[Any], kl: K1 | FullKL) -> None:
    given: Any = ragged()
    plain, outputs = objective(kind, None, weight=0.0)(given), objective(kind, kl)(given)
    divergence = given.full_kl if isinstance(kl, FullKL) else given.log_probs - given.ref_log_probs
    rows = [value[kept] for value, kept in zip(divergence.detach(), given.mask, strict=True) if kept.any()]
    expected = torch.stack([row.mean() for row in rows]).mean()
    assert_close(outputs.loss - plain.loss, 0.5 * expected)
    assert_close(outputs.metrics["kl"], torch.cat(rows).mean())
    assert "kl" not in plain.metrics


def test_full_kl_gradient_equals_weights_and_is_zero_outside_mask() -> None:
    given = ragged()
    with pytest.raises(ValueError, match="full_kl"):
        objective(GSPO, FullKL())(replace(given, full_kl=None))
    nan_outside_mask = torch.ones(5, 5, dtype=torch.float64).masked_fill(~given.mask, float("nan")).requires_grad_()
    loss = objective(GSPO, FullKL())(replace(given, ref_log_probs=None, full_kl=nan_outside_mask)).loss
    weights = SeqMeanTokenMean().weights(given.mask, rows=4.0, tokens=13.0)
    assert_close(torch.autograd.grad(loss, nan_outside_mask)[0], 0.5 * weights)


def test_kl_per_token_without_reference_is_none() -> None:
    given = replace(ragged(), ref_log_probs=None, full_kl=None)
    assert all(kl_per_token(kl, given) is None for kl in (None, K1(), FullKL()))


@pytest.mark.parametrize(
    ("kinds", "settings"),
    [
        ([ConstantLength], {"length": 0}),
        ([K3], {"max_value": 0.0}),
        (WITH_KL, {"kl_weight": -1.0}),
        (WITH_KL, {"kl_weight": 0.5}),
        (WITH_KL, {"clip_high": -0.1}),
    ],
)
def test_settings_out_of_range_raise(kinds: list[Any], settings: dict[str, float]) -> None:
    ((name, value),) = settings.items()
    others: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "kl_weight": 0.0, "kl": None}
    others = {"length": {}, "max_value": {"max_log_ratio": 20.0}}.get(name, others | {"aggregation": TokenMean()})
    for kind in kinds:
        with pytest.raises(ValueError, match=f"{name}.*{value}"):
            kind(**others | settings)
