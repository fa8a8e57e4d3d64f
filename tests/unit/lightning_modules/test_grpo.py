"""GRPO in a real Trainer: a tiny Llama, our own engine, Countdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.objectives import (
    GRPO as Objective,
    FullKL,
    ObjectiveInputs,
    ObjectiveOutputs,
    SeqMeanTokenMean,
    TokenCorrection,
    TokenMean,
)
from contrastive_reasoning.rewards import Credit, VerifierReward
from contrastive_reasoning.rollout import Engine, RolloutBatch
from datamodules.reasoning_prompts import ProblemBatch
from experiments.run_folder.logger import RunFolderLogger
from lightning_modules.microbatches import rows_with_gradient
from tests.unit.lightning_modules.grpo_kit import (
    TASK,
    Digits,
    Gradients,
    Metrics,
    as_policy,
    assert_resumes,
    fit,
    generation,
    lora_policy,
    module,
    objective,
    optimizer,
    policy,
    prompts,
    weights,
)
from tests.unit.lightning_modules.rewards_kit import clipo, gated, ramped


def gradients(tokens: int, dtype: torch.dtype, updates: int, loss: Objective) -> list[Tensor]:
    captured, metrics = Gradients(), Metrics()
    trained = module(
        policy=policy(dtype),
        reference=policy(dtype, seed=2),
        objective=loss,
        microbatch_tokens=tokens,
        updates_per_rollout=updates,
        gradient_clip=None,
    )
    fit(trained, 1, captured, metrics)
    assert 0.2 < metrics.steps[0]["train/rollout/truncated"] < 0.9, "completions of many lengths"
    assert metrics.steps[0]["train/objective/kl"] > 1e-3
    return captured.updates


BY_TOKENS, BY_ROWS = (objective(0.1, aggregation) for aggregation in (TokenMean(), SeqMeanTokenMean()))


@pytest.mark.parametrize(
    ("loss", "dtype", "tolerance", "updates"),
    [
        (BY_TOKENS, torch.float32, 1e-5, 1),
        (BY_ROWS, torch.float32, 1e-5, 1),
        (BY_TOKENS, torch.float64, 1e-9, 2),
        (BY_ROWS, torch.float64, 1e-9, 2),
        (replace(BY_TOKENS, kl_weight=0.5, kl=FullKL()), torch.float64, 1e-9, 1),
    ],
)
def test_gradients_do_not_depend_on_microbatch_split(
    loss: Objective, dtype: torch.dtype, tolerance: float, updates: int
) -> None:
    whole = gradients(1_000_000, dtype, updates, loss)
    assert whole[0].norm() > 1e-3
    for tokens in (1, 150):
        for split, expected in zip(gradients(tokens, dtype, updates, loss), whole, strict=True):
            assert ((split - expected).norm() / expected.norm()).item() < tolerance


@pytest.mark.parametrize(
    "make",
    [dict, lambda: {"reward": clipo(warmup_steps=1)}, lambda: {"reward": clipo(warmup_steps=3)}, lambda: gated(0.9)],
    ids=["plain", "clipo", "clipo in warm-up", "trust gate"],
)
def test_resumed_run_is_bitwise_equal_to_uninterrupted_run(make: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    assert_resumes(lambda seed: module(policy=policy(seed=seed), **make()), tmp_path)


def test_resumed_run_with_critic_and_buffer_is_bitwise_equal(tmp_path: Path) -> None:
    _, metrics = assert_resumes(lambda seed: module(policy=policy(seed=seed), reward=ramped()), tmp_path)
    assert [step["train/online_critic/ramp"] for step in metrics.steps] == [1.0, 2.0, 3.0]
    assert [step["train/online_critic/buffer_triples"] for step in metrics.steps] == [12.0, 24.0, 36.0]
    assert {"train/online_critic/loss", "train/reward/critic", "train/reward/half"} <= set(metrics.steps[0])


def test_ratio_is_exactly_one_in_the_first_update_only() -> None:
    first, second = Metrics(), Metrics()
    fit(module(), 1, first)
    assert first.steps[0]["train/objective/approx_kl"] == 0.0
    assert 0 < first.steps[0]["train/rollout/log_prob_gap"] <= 1e-5
    thrice = module(updates_per_rollout=3)
    assert fit(thrice, 2, second).global_step == 6, "updates are optimizer steps, rollout batches are counted"
    assert thrice.rollout_step == 2
    assert second.steps[0]["train/objective/ratio_max"] > 1.001


def test_each_minibatch_steps_on_its_own_groups() -> None:
    whole, parts = Gradients(), Gradients()
    common: dict[str, Any] = {
        "optimizer": optimizer(0.0),
        "objective": objective(0.0, SeqMeanTokenMean()),
        "gradient_clip": None,
    }
    fit(module(**common), 1, whole)
    fit(module(**common, minibatches_per_rollout=3), 1, parts)
    assert len(parts.updates) == 3
    assert not torch.allclose(parts.updates[0], parts.updates[1])
    assert_close(torch.stack(parts.updates).mean(dim=0), whole.updates[0], rtol=1e-4, atol=1e-6)


def test_later_minibatches_use_ratio_to_sampling_policy() -> None:
    still, moved = Metrics(), Metrics()
    fit(module(optimizer=optimizer(0.0), minibatches_per_rollout=3), 1, still)
    fit(module(optimizer=optimizer(1e-2), minibatches_per_rollout=3), 1, moved)
    assert still.steps[0]["train/objective/ratio_max"] == pytest.approx(1, abs=1e-5)
    assert moved.steps[0]["train/objective/ratio_max"] > 1.001
    assert moved.steps[0]["train/rollout/log_prob_gap"] < 1e-4, "scored before the first step"


def test_training_increases_reward() -> None:
    metrics = Metrics()
    fit(module(optimizer=optimizer(5e-3)), 16, metrics)
    rewards = [step["train/reward/digits"] for step in metrics.steps]
    assert sum(rewards[-4:]) > 1.5 * sum(rewards[:4])


def test_equal_rewards_leave_policy_bitwise_unchanged() -> None:
    trained = module(reward=VerifierReward(task=TASK))
    metrics = Metrics()
    fit(trained, 2, metrics)
    assert metrics.steps[-1]["train/advantage/informative_groups"] == 0.0
    assert torch.equal(weights(trained), weights(module()))


class EveryOther(Digits):
    """Adds a metric in every other batch only, like metrics that need a correct and a wrong rollout."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = super().__call__(rollouts)
        self.calls = getattr(self, "calls", 0) + 1
        return replace(credit, metrics={"digits/odd": float(self.calls)} if self.calls % 2 else {})


def test_grpo_logs_metrics_at_expected_steps(tmp_path: Path) -> None:
    logger = RunFolderLogger(folder=tmp_path)
    trained = module(updates_per_rollout=2, reward=EveryOther())
    fit(trained, 4, logger=logger, validate_every=2, data=prompts(3, 4, training_problems=2, validation_problems=2))
    logger.finalize("success")
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps: dict[str, list[int]] = {}
    for row in rows:
        steps.setdefault(row["name"], []).append(row["step"])
    assert steps["train/digits/odd"] == [1, 3], "not repeated in the steps that lack it"
    for name in ("reward/digits", "objective/clip_fraction", "optimizer/learning_rate", "rollout/completion_tokens"):
        assert steps[f"train/{name}"] == [1, 2, 3, 4]
    names = ("accuracy", "accuracy_sampled", "pass_at_2")
    for name in (*[f"verifier/{name}" for name in names], "longproc/partial_accuracy", "verdict/unparsed"):
        assert steps[f"val/{name}"] == steps[f"val/training_problems/{name}"] == [2, 4]
    rates = [row["value"] for row in rows if row["name"] == "train/optimizer/learning_rate"]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 1e-3 * (1 - 1 / 98)])


def test_batch_without_rollouts_raises() -> None:
    for step in (module().training_step, module().validation_step):
        with pytest.raises(RuntimeError, match="RolloutGeneration"):
            step(ProblemBatch(TASK.problems("train")[:2]), 0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: {"objective": BY_TOKENS}, r"objective\.kl_weight=0\.1 .*module=grpo_reference"),
        (
            lambda: {
                "objective": BY_TOKENS,
                "reference": policy(),
                "shard_reference": True,
                "offload_reference": True,
            },
            r"module\.shard_reference.*module\.offload_reference",
        ),
        (lambda: {"policy": lora_policy(dropout=0.1)}, r"policy\.lora\.dropout"),
        (lambda: {"policy": policy(torch.float16)}, r"policy\.weights_dtype=float16"),
        (lambda: {"policy": as_policy(policy().model, torch.float16)}, r"policy\.compute_dtype=float16"),
    ],
)
def test_contradictory_parts_raise(make: Callable[[], dict[str, Any]], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        module(**make())


def test_frozen_weights_may_be_float16() -> None:
    frozen = as_policy(policy(torch.float16).requires_grad_(False).model)
    assert module(policy=frozen).policy is frozen


class FirstGroupOnly(Digits):
    """Gives all rollouts of the other groups the same reward."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = super().__call__(rollouts).outcome.clone()
        outcome[rollouts.group_size :] = 1.0
        return Credit(outcome=outcome, parts={"digits": outcome})


@pytest.mark.parametrize("aggregation", [TokenMean(), SeqMeanTokenMean()], ids=lambda part: type(part).__name__)
def test_skipping_groups_with_equal_rewards_keeps_gradient(aggregation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient() -> Tensor:
        captured = Gradients()
        trained = module(
            policy=policy(torch.float64),
            reward=FirstGroupOnly(),
            objective=objective(aggregation=aggregation),
            gradient_clip=None,
        )
        fit(trained, 1, captured)
        return captured.updates[0]

    def every_row(advantages: torch.Tensor, *, reference: bool, among: torch.Tensor | None = None) -> torch.Tensor:
        return torch.ones(len(advantages), dtype=torch.bool) if among is None else among

    some = gradient()
    monkeypatch.setattr("lightning_modules.grpo.rows_with_gradient", every_row)
    assert_close(some, gradient(), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("advantages", "reference", "expected"),
    [
        ([[0.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], False, [False, True, True]),
        ([[0.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], True, [True, True, True]),
        ([[0.0, 0.0], [0.0, 0.0]], False, [True, False]),
    ],
)
def test_rows_with_gradient_selects_rows_by_advantage_and_reference(
    advantages: list[list[float]], reference: bool, expected: list[bool]
) -> None:
    assert rows_with_gradient(torch.tensor(advantages), reference=reference).tolist() == expected


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

    def gradient(**changes: Any) -> Tensor:
        captured, engine = Gradients(), Shifted(log(2) if changes else 0.0)
        trained = module(optimizer=optimizer(0.0), gradient_clip=None, **changes)
        fit(trained, 1, captured, draws=generation(engine=engine))
        return captured.updates[0]

    plain = gradient()
    for cap, factor in ((3.0, 2.0), (1.5, 1.5)):
        assert_close(gradient(correction=TokenCorrection(cap=cap)), factor * plain, rtol=1e-4, atol=1e-7)


class WithoutMetrics:
    """An objective of the user's own that returns only a loss."""

    inner = objective()
    weights = inner.weights

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        return ObjectiveOutputs(loss=self.inner(inputs).loss)


def test_objective_without_metrics_trains_over_several_updates() -> None:
    metrics, with_metrics = Metrics(), Metrics()
    fit(module(objective=WithoutMetrics(), updates_per_rollout=2), 1, metrics)
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
