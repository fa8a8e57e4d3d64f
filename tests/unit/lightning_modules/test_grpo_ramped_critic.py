"""GRPO with a critic that trains while it rewards, in a real Trainer: its metrics, and a resumed run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from contrastive_reasoning.rewards import Credit, RampedCriticReward
from contrastive_reasoning.rollout import RolloutBatch
from tests.unit.lightning_modules.grpo_kit import Metrics, fit, module, weights
from tests.unit.rewards import test_ramped_critic as kit


class OnSearches(RampedCriticReward):
    """Replaces each completion by a search that contains its length, because a random policy writes no searches."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        return super().__call__(replace(rollouts, texts=[search(len(text)) for text in rollouts.texts]))


def search(number: int) -> str:
    states = ([number, 7], [number + 7], [number])
    return "\n".join(f"{' ' * depth}|- Try ### Current State: {state}" for depth, state in enumerate(states))


def reward() -> OnSearches:
    plain: Any = kit.ramped(draw=4, optimizer=kit.adam(1e-2), divisor=0.01)
    plain.__class__ = OnSearches
    return plain


def test_resumed_run_with_critic_and_buffer_is_bitwise_equal(tmp_path: Path) -> None:
    metrics, whole = Metrics(), module(reward=reward())
    fit(whole, 4, metrics)
    assert [step["train/online_critic/ramp"] for step in metrics.steps] == [1.0, 2.0, 3.0, 4.0]
    assert [step["train/online_critic/buffer_triples"] for step in metrics.steps] == [12.0, 24.0, 36.0, 48.0]
    assert {"train/online_critic/loss", "train/reward/critic", "train/reward/half"} <= set(metrics.steps[0])

    saving = ModelCheckpoint(dirpath=tmp_path, filename="last", every_n_train_steps=2)
    fit(module(reward=reward()), 4, saving, stop_after=2)
    resumed = module(reward=reward())
    fit(resumed, 4, resume=tmp_path / "last.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.equal(kit.weights(resumed.reward), kit.weights(whole.reward))
    states = [run.reward.state_dict() for run in (resumed, whole)]
    assert [state["calls"] for state in states] == [4, 4]
    assert states[0]["buffer"]["searches"] == states[1]["buffer"]["searches"]
    assert torch.equal(states[0]["buffer"]["triples"], states[1]["buffer"]["triples"])
