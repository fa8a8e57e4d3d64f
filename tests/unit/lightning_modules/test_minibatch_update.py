"""Old log-probs come from the update's own pass; their gap to the sampler's is always logged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.objectives import ObjectiveInputs, ObjectiveOutputs, TokenCorrection
from contrastive_reasoning.rollout import Engine, RolloutBatch
from tests.unit.lightning_modules.grpo_kit import (
    Gradients,
    Metrics,
    fit,
    generation,
    module,
    objective,
    optimizer,
    weights,
)


class Shifted(Engine):
    """An engine that returns log-probs too low by ``shift``."""

    def __init__(self, shift: float) -> None:
        super().__init__(max_batch_tokens=100_000)
        self.shift = shift

    def generate(self, *arguments: Any, **settings: Any) -> RolloutBatch:
        rollouts = super().generate(*arguments, **settings)
        return replace(rollouts, old_log_probs=(rollouts.old_log_probs - self.shift) * rollouts.mask)


def test_one_step_per_rollout_batch_needs_no_scoring_pass() -> None:
    trained, with_gradient = module(), []
    states = trained.policy.completion_states
    trained.policy.completion_states = lambda *rows: with_gradient.append(torch.is_grad_enabled()) or states(*rows)
    fit(trained, 2)
    assert with_gradient
    assert all(with_gradient)


def test_token_correction_scales_gradient_by_capped_weight() -> None:
    """The sampler gives every token half of the policy's probability, so its uncapped weight is 2."""
    plain, corrected, cut = Gradients(), Gradients(), Gradients()
    settings: dict[str, Any] = {"optimizer": optimizer(0.0), "gradient_clip": None}
    fit(module(**settings), 1, plain)
    fit(module(**settings, correction=TokenCorrection(cap=3.0)), 1, corrected, draws=generation(engine=Shifted(log(2))))
    fit(module(**settings, correction=TokenCorrection(cap=1.5)), 1, cut, draws=generation(engine=Shifted(log(2))))
    assert_close(corrected.updates[0], 2.0 * plain.updates[0], rtol=1e-4, atol=1e-7)
    assert_close(cut.updates[0], 1.5 * plain.updates[0], rtol=1e-4, atol=1e-7)


@dataclass(frozen=True, kw_only=True)
class WithoutMetrics:
    """An objective of the user's own that returns only a loss."""

    inner: Any

    def weights(self, mask: Tensor, *, rows: float, tokens: float) -> Tensor:
        return self.inner.weights(mask, rows=rows, tokens=tokens)

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        return ObjectiveOutputs(loss=self.inner(inputs).loss)


def test_objective_without_metrics_trains_over_several_updates() -> None:
    metrics, with_metrics = Metrics(), Metrics()
    fit(module(objective=WithoutMetrics(inner=objective()), updates_per_rollout=2), 1, metrics)
    fit(module(updates_per_rollout=2), 1, with_metrics)
    (step,), (full,) = metrics.steps, with_metrics.steps
    assert step["train/objective/loss"] == pytest.approx(full["train/objective/loss"])
    assert step["train/objective/ratio_mean"] == pytest.approx(1.0, abs=1e-4), "of the first update"


def test_sampler_mismatch_is_logged_and_does_not_change_update() -> None:
    metrics, trained, unshifted = Metrics(), module(), module()
    fit(trained, 2, metrics, draws=generation(engine=Shifted(0.5)))
    fit(unshifted, 2)
    for step in metrics.steps:
        assert step["train/objective/ratio_mean"] == pytest.approx(exp(0.5), rel=1e-4)
        assert step["train/rollout/log_prob_gap"] == pytest.approx(0.5, abs=1e-4)
        assert step["train/objective/approx_kl"] == 0.0
    assert torch.equal(weights(trained), weights(unshifted))
