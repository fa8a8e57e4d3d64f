"""GRPO with the contrastive reward in a real Trainer: warm-up of the head, checkpoint, LoRA, several micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rewards.clipo import CLIPOReward, LinearHead
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Verdict
from experiments.stages.checkpoints import path_of
from experiments.stages.stage_checkpoint import Interrupted
from tests.unit.lightning_modules.grpo_kit import (
    Metrics,
    Stop,
    fit,
    lora_policy,
    module,
    objective,
    policy,
    saving,
    weights,
)
from tests.unit.rewards.test_clipo import SETTINGS


class Even:
    """Accepts completions of even length, so that a random policy has mixed groups."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = [Verdict(status="ok" if len(text) % 2 == 0 else "wrong", reason="") for text in rollouts.texts]
        outcome = rollouts.old_log_probs.new_tensor([float(verdict.correct) for verdict in verdicts])
        return Credit(outcome=outcome, parts={"verifier": outcome}, verdicts=verdicts)


def clipo(**changes: Any) -> CLIPOReward:
    own: dict[str, Any] = {"outcome": Even(), "head": LinearHead(dimension=6, seed=0), "temperature": 0.2}
    return CLIPOReward(**SETTINGS | own | {"learning_rate": 1e-2, "max_skipped_steps": 0} | changes)


class NaNLoss:
    """A loss that is NaN."""

    def __call__(self, logits: Tensor, *_: Any) -> Tensor:
        return logits.sum(dim=1) * float("nan")


def head_of(reward: CLIPOReward) -> Tensor:
    assert reward.head is not None
    return next(reward.head.parameters()).detach().clone()


def test_only_head_trains_during_warmup() -> None:
    reward, metrics = clipo(warmup_steps=2), Metrics()
    trained = module(reward=reward)
    before, untouched = weights(trained), module(reward=clipo(warmup_steps=2))
    fit(untouched, 0)
    assert untouched.rollout_step == 2
    assert torch.equal(weights(untouched), before)
    fresh = clipo(warmup_steps=2)
    fresh._build(head_of(untouched.reward).shape[1])
    assert not torch.equal(head_of(untouched.reward), head_of(fresh))
    fit(trained, 2, metrics)
    assert trained.rollout_step == 4, "two batches for the head, two for the policy"
    assert "train/objective/loss" not in metrics.steps[1]
    assert "train/objective/loss" in metrics.steps[2]
    assert {"train/clipo/loss", "train/reward/clipo", "train/clipo/valid_groups"} <= set(metrics.steps[0])
    assert not torch.equal(weights(trained), before)
    assert metrics.steps[2]["train/optimizer/learning_rate"] == pytest.approx(0.5e-3), "its schedule begins then"


def test_resumed_run_with_head_is_bitwise_equal_to_uninterrupted_run(tmp_path: Path) -> None:
    whole = module(reward=clipo(warmup_steps=1))
    fit(whole, 4)
    checkpoint = ModelCheckpoint(dirpath=tmp_path, filename="last", every_n_train_steps=2)
    fit(module(reward=clipo(warmup_steps=1)), 4, checkpoint, stop_after=2)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert saved["reward"]["calls"] == 3
    assert saved["reward"]["optimizer"]["state"]
    resumed = module(reward=clipo(warmup_steps=1))
    fit(resumed, 4, resume=tmp_path / "last.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.equal(head_of(resumed.reward), head_of(whole.reward))
    assert resumed.reward.calls == whole.reward.calls == 5


def test_run_stopped_in_warmup_resumes_at_that_step(tmp_path: Path) -> None:
    whole = module(reward=clipo(warmup_steps=3))
    fit(whole, 2, saving(tmp_path / "whole"))

    stopped, stopping = module(reward=clipo(warmup_steps=3)), saving(tmp_path / "stopped")
    with pytest.raises(Interrupted):
        fit(stopped, 2, stopping, Stop(2, stopping))
    assert stopped.rollout_step == 2
    resumed = module(reward=clipo(warmup_steps=3))
    fit(resumed, 2, saving(tmp_path / "resumed"), resume=path_of(tmp_path / "stopped", 2))
    assert resumed.rollout_step == whole.rollout_step == 5
    assert resumed.reward.calls == whole.reward.calls == 5
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.equal(head_of(resumed.reward), head_of(whole.reward))


def test_only_policy_is_registered_and_reference_requires_kl_term() -> None:
    kept, dropped = (module(reward=clipo(), reference=policy(seed=2), objective=objective(kl)) for kl in (0.1, 0.0))
    fit(kept, 1)
    assert all(name.startswith("policy.") for name in kept.state_dict())
    assert not any("head" in name and "lm_head" not in name for name in kept.state_dict())
    assert len(list(kept.parameters())) == len(list(kept.policy.parameters()))
    assert kept.reference is not None
    assert dropped.reference is None


def test_clipo_trains_with_adapters_and_several_microbatches() -> None:
    metrics = Metrics()
    trained = module(policy=lora_policy(), reward=clipo(), microbatch_tokens=100)
    fit(trained, 2, metrics)
    assert metrics.steps[-1]["train/clipo/loss"] > 0
    assert metrics.steps[-1]["train/optimizer/gradient_norm"] > 0


def test_zero_clipo_weight_is_bitwise_equal_to_plain_reward() -> None:
    plain = module(reward=Even())
    zero = module(reward=clipo(weight=0.0))
    fit(plain, 3)
    fit(zero, 3)
    assert torch.equal(weights(plain), weights(zero))


def test_adapter_dropout_raises() -> None:
    with pytest.raises(ValueError, match=r"policy\.lora\.dropout"):
        module(policy=lora_policy(dropout=0.1))


def test_non_finite_head_loss_raises_and_writes_rollouts(tmp_path: Path) -> None:
    trained = module(reward=clipo(formula=NaNLoss(), warmup_steps=5))
    before = weights(trained)
    with pytest.raises(FloatingPointError, match=r"0 steps of CLIPO") as error:
        fit(trained, 2, root=tmp_path)
    path = tmp_path / "skipped" / "step=000001.rank0.pt"
    assert f"the batch of step 1 is in {path}" in str(error.value)
    assert {"completion_ids", "pooled", "texts"} <= torch.load(path, weights_only=True).keys()
    assert torch.equal(weights(trained), before)
