"""GRPO in a real Trainer: a tiny Llama, our own engine, Countdown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.objectives import FullKL, SeqMeanTokenMean, TokenMean
from contrastive_reasoning.rewards import Credit, VerifierReward
from contrastive_reasoning.rollout import RolloutBatch
from datamodules.reasoning_prompts import ProblemBatch
from experiments.run_folder.logger import RunFolderLogger
from lightning_modules.microbatches import rows_with_gradient
from tests.unit.lightning_modules.grpo_kit import (
    TASK,
    Digits,
    Gradients,
    Metrics,
    fit,
    gradients,
    module,
    objective,
    optimizer,
    policy,
    prompts,
    weights,
)


@pytest.mark.parametrize("aggregation", [TokenMean(), SeqMeanTokenMean()], ids=lambda part: type(part).__name__)
@pytest.mark.parametrize(
    ("dtype", "tolerance", "updates"), [(torch.float32, 1e-5, 1), (torch.float64, 1e-9, 2)], ids=["fp32", "fp64"]
)
def test_gradients_do_not_depend_on_microbatch_split(
    dtype: torch.dtype, tolerance: float, updates: int, aggregation: Any
) -> None:
    whole = gradients(1_000_000, dtype, aggregation, updates)
    assert whole[0].norm() > 1e-3
    for tokens in (1, 150):
        for split, expected in zip(gradients(tokens, dtype, aggregation, updates), whole, strict=True):
            assert ((split - expected).norm() / expected.norm()).item() < tolerance


def test_resumed_run_is_bitwise_equal_to_uninterrupted_run(tmp_path: Path) -> None:
    def saving(folder: str) -> ModelCheckpoint:
        return ModelCheckpoint(dirpath=tmp_path / folder, filename="last", every_n_train_steps=1, save_top_k=1)

    whole, all_steps = module(), Metrics()
    fit(whole, 4, saving("whole"), all_steps)
    fit(module(), 4, saving("stopped"), stop_after=2)
    resumed, later_steps = module(policy=policy(seed=7)), Metrics()
    fit(resumed, 4, saving("resumed"), later_steps, resume=tmp_path / "stopped" / "last.ckpt")
    assert resumed.rollout_step == whole.rollout_step == 4
    assert torch.equal(weights(resumed), weights(whole))
    assert not torch.equal(weights(whole), weights(module()))
    for ours, theirs in zip(later_steps.steps, all_steps.steps[2:], strict=True):
        assert without_clock(ours) == without_clock(theirs)
    states = [torch.load(tmp_path / run / "last.ckpt", weights_only=True) for run in ("whole", "resumed")]
    first, second = (state["optimizer_states"][0]["state"] for state in states)
    assert all(torch.equal(first[i][name], second[i][name]) for i in first for name in first[i])


def without_clock(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if "throughput" not in name}


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


def test_full_kl_gradient_does_not_depend_on_microbatch_split() -> None:
    def run(tokens: int) -> tuple[list[Tensor], Metrics]:
        captured, metrics = Gradients(), Metrics()
        whole = replace(objective(kl_weight=0.5), kl=FullKL())
        reference = policy(torch.float64, seed=2)
        changes = {"policy": policy(torch.float64), "microbatch_tokens": tokens, "gradient_clip": None}
        fit(module(reference=reference, objective=whole, **changes), 1, captured, metrics)
        return captured.updates, metrics

    (split, _), (together, metrics) = run(150), run(1_000_000)
    assert metrics.steps[0]["train/objective/kl"] > 1e-3
    assert_close(split[0], together[0], rtol=1e-9, atol=1e-12)


class EveryOther(Digits):
    """Adds a metric in every other batch only, like metrics that need a correct and a wrong rollout."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = super().__call__(rollouts)
        self.calls = getattr(self, "calls", 0) + 1
        return replace(credit, metrics={"digits/odd": float(self.calls)} if self.calls % 2 else {})


def test_grpo_logs_metrics_at_expected_steps(tmp_path: Path) -> None:
    logger = RunFolderLogger(folder=tmp_path)
    trained = module(updates_per_rollout=2, reward=EveryOther())
    fit(trained, 4, logger=logger, validate_every=2, data=prompts(3, 4, training_problems=4))
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
