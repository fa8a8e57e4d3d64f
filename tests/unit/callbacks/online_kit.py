"""Parts for runs of the online critic: the embedded policy, real play, a small critic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning import Callback
from torch import Tensor

from callbacks.online_critic import CriticUpdates, OnlineCritic
from callbacks.outcome_critic import OutcomeCritic, OutcomeUpdates
from callbacks.rollout_generation import RolloutGeneration
from contrastive_reasoning.advantages import GroupRelative
from contrastive_reasoning.critics import Calibration, Isotonic, JointCritic
from contrastive_reasoning.losses import BinaryNCE
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rewards import CalibratedReward, CriticReward, VerifierReward
from datamodules.hindsight_states import EveryGoal, HindsightStates
from experiments.run_folder.reader import read_metrics
from lightning_modules.grpo import GRPO
from lightning_modules.optim import AdamW
from tests.tiny_models import loaded_policy
from tests.tiny_tasks import countdown
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.grpo_kit import module, optimizer, prompts

TASK = countdown(counts=[3], number_range=[1, 30], train_problems=24, validation_problems=2)
STREAM = HindsightStates(
    task=TASK,
    numbers=3,
    number_range=[1, 30],
    target_range=[10, 50],
    depth_shares=[0.4, 0.4, 0.2],
    exhaust_up_to=3,
    pairing=EveryGoal(),
    batch_size=16,
    validation_batches=1,
    oracle_batch_size=64,
    workers=0,
    seed=0,
)
"""Shared by all runs, because a batch depends only on its number."""


def critic(seed: int = 0) -> JointCritic:
    return JointCritic(
        value_dimension=4, width=16, blocks=1, dimension=8, join_dimension=4, pairs_per_chunk=1000, seed=seed
    )


def reward(checkpoint: str, weight: float = 0.5, scoring: Any = None) -> CriticReward:
    return CriticReward(
        outcome=VerifierReward(task=TASK),
        task=TASK,
        critic=scoring or critic(seed=1),
        checkpoint=checkpoint,
        weight=weight,
        temperature=1.0,
        batch_size=1024,
    )


def calibrated(checkpoint: str, scoring: Any = None) -> CalibratedReward:
    """The same critic, or the given one, calibrated to the success of this policy."""
    calibration = Calibration(curve=Isotonic(), least_visits=5)
    source = reward(checkpoint, weight=0.0, scoring=scoring)
    return CalibratedReward(
        source=source, weight=0.0, calibration=calibration, batches=2, refit_every=1, warmup_steps=1
    )


def adamw(learning_rate: float, *, epsilon: float = 1e-8) -> AdamW:
    settings: dict[str, Any] = {"betas": [0.9, 0.999], "schedule": "constant", "total_steps": None}
    return optimizer(learning_rate, epsilon=epsilon, weight_decay=0.01, **settings)


def online(**changes: Any) -> OnlineCritic:
    updates = {name: changes.pop(name) for name in ("steps", "seed", "loss", "max_skipped_steps") if name in changes}
    settings: dict[str, Any] = {"learn_every": 1, "refresh_every": 2, "buffer_states": 60}
    return OnlineCritic(task=TASK, updates=CriticUpdates(**(UPDATES | updates)), **(settings | changes))


def outcomes(buffer_batches: int = 2, **changes: Any) -> OutcomeCritic:
    limits: dict[str, Any] = {"steps": 2, "max_skipped_steps": 0, "seed": 5, "batch_size": 16}
    settings = limits | {"optimizer": adamw(1e-2), "temperature": 1.0}
    return OutcomeCritic(task=TASK, updates=OutcomeUpdates(**(settings | changes)), buffer_batches=buffer_batches)


UPDATES: dict[str, Any] = {
    "stream": STREAM,
    "first_replayed": 100,
    "pairing": EveryGoal(),
    "goal_range": [10, 50],
    "loss": BinaryNCE(temperature=1.0),
    "optimizer": adamw(1e-2),
    "steps": 2,
    "max_skipped_steps": 0,
    "seed": 5,
}


def policy() -> CausalLMPolicy:
    """The embedded Countdown policy, which writes legal moves."""
    return loaded_policy("embedded:llama_countdown")


def learner(shaped: Any, advantage: Any = None, optimizer: AdamW | None = None) -> GRPO:
    return module(
        policy=policy(),
        task=TASK,
        reward=shaped,
        advantage=advantage or GroupRelative(normalise_std=True, epsilon=1e-6),
        optimizer=optimizer or adamw(1e-4),
        microbatch_tokens=4096,
    )


def fit(
    trained: GRPO,
    steps: int,
    *callbacks: Callback,
    group_size: int = 6,
    validation_problems: int = 0,
    **run: Any,
) -> None:
    """Trains on ``steps`` batches, with those of a warm-up."""
    grpo_kit.fit(
        trained,
        steps - trained.warmup_steps,
        *callbacks,
        draws=generation(group_size),
        data=prompts(4, steps, TASK, validation_problems),
        validate_every=1 if validation_problems else None,
        **run,
    )


def generation(group_size: int = 4) -> RolloutGeneration:
    """Rollout generation with completions long enough for whole plays."""
    drawn, greedy = (grpo_kit.sampling(temperature, max_tokens=32, stop="") for temperature in (1.0, 0.0))
    return grpo_kit.generation(group_size=group_size, sampling=drawn, greedy=greedy)


def flat(part: Any) -> Tensor:
    return torch.cat([tensor.flatten().double() for tensor in part.state_dict().values()])


def values_by_step(folder: Path) -> dict[tuple[int, str], float]:
    """Logged metrics by step and name, without times."""
    return {(m.step, m.name): m.value for m in read_metrics(folder) if grpo_kit.is_reproducible(m.name)}


def logged(folder: Path) -> dict[str, dict[int, float]]:
    """Logged metrics of the online critic, by name and step."""
    values: dict[str, dict[int, float]] = {}
    for metric in read_metrics(folder):
        if metric.name.startswith("train/online_critic/"):
            values.setdefault(metric.name.rpartition("/")[2], {})[metric.step] = metric.value
    return values
