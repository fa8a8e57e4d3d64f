"""The KL term that all objectives share: its weight, its sources, and when there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.objectives import (
    CISPO,
    DAPO,
    GMPO,
    GRPO,
    GSPO,
    K1,
    FullKL,
    Objective,
    ObjectiveInputs,
    SeqMeanTokenMean,
    TokenMean,
    needs_full_kl,
)
from contrastive_reasoning.objectives.total import kl_per_token

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


def test_who_needs_it() -> None:
    assert needs_full_kl(objective(GSPO, FullKL()))
    assert not needs_full_kl(objective(GMPO, K1()))
    assert not needs_full_kl(DAPO(clip_low=0.2, clip_high=0.28, dual_clip=None))
    clipped: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "aggregation": TokenMean()}
    assert needs_full_kl(GRPO(**clipped, kl_weight=0.1, kl=FullKL()))
