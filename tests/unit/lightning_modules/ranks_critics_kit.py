"""Training of critics and warm start on ranks: from pairs, from preferences, and beside a policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning import Callback, LightningDataModule
from torch.utils.data import DataLoader

from contrastive_reasoning.advantages import Advantage, GroupRelative, Potential, Process, Subsampled, TrustGate
from contrastive_reasoning.critics import (
    CriticBatch,
    CriticOracleBatch,
    EnsembleCritic,
    LoRATraining,
    TextCritic,
    save_critic,
)
from contrastive_reasoning.distributed import barrier, share
from contrastive_reasoning.evaluation import evaluate
from contrastive_reasoning.losses import BinaryNCE, InfoNCE, SymmetricInfoNCE, dot
from contrastive_reasoning.policies.pooling import last_pool
from contrastive_reasoning.rewards import Reward, ShuffledReward
from contrastive_reasoning.rewards.critic import verdict_auroc
from contrastive_reasoning.rollout import Engine, RolloutBatch
from tests.unit.callbacks import online_kit
from tests.unit.lightning_modules import grpo_kit, test_critic, test_preference, test_warm_start
from tests.unit.lightning_modules.ranks_kit import STEPS, Result, fit, trained

OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)


def preference(name: str) -> Result:
    """Trains a critic; returns its weights, and the goal that is set after the last step."""
    critic = test_preference.critic()
    found = trained(name, test_preference.module(critic, gradient_clip=1.0), test_preference.pairs())
    return {**found, "head": critic.goal.clone()}


@contextmanager
def checkpoint(critic: Any = None) -> Iterator[str]:
    """A saved critic, by default one of numbers."""
    with TemporaryDirectory() as folder:
        save_critic(critic or online_kit.critic(), Path(folder), {})
        yield folder


def online_critic(name: str) -> Result:
    """Trains a critic beside a policy on real plays; returns both copies of the critic and its replay buffer."""
    with checkpoint() as folder:
        reward = online_kit.reward(folder)
        module, loop = online_kit.learner(reward), online_kit.online()
        data = grpo_kit.prompts(4, 3, online_kit.TASK, 2)
        fit(name, module, data, online_kit.generation(), loop, limit_val_batches=0)
    return {
        "learned": online_kit.flat(loop.updates.critic),
        "scoring": online_kit.flat(reward.critic),
        "start": online_kit.flat(online_kit.critic()),
        "states": loop.buffer.state_dict(),
        "refreshes": loop.refreshes,
    }


def foretold() -> float | None:
    """AUROC of a critic for the verdicts on plays of a few problems, of which each rank has its share."""
    with checkpoint() as folder:
        problems = share(online_kit.TASK.problems("train")[:8])
        sampling = online_kit.generation().sampling
        rollouts = Engine(max_batch_tokens=100_000).generate(
            online_kit.policy(), problems, group_size=4, sampling=sampling, seed=(0,)
        )
        return verdict_auroc(online_kit.reward(folder), online_kit.TASK, rollouts)


class BarrierEngine(Engine):
    """An engine whose ranks wait for each other, as ranks that share a server do."""

    def generate(self, *args: Any, **settings: Any) -> RolloutBatch:
        barrier()
        return super().generate(*args, **settings)


def of_one_problem() -> dict[str, float]:
    """An evaluation in which all ranks but the first have no problem."""
    drawing = online_kit.generation()
    found = evaluate(
        online_kit.policy(),
        online_kit.TASK,
        online_kit.TASK.problems("train")[3:4],
        engine=BarrierEngine(max_batch_tokens=100_000),
        samples=4,
        sampling=drawing.sampling,
        greedy=drawing.greedy,
        k_values=[4],
        seed=0,
    )
    return dict(found.metrics)


def calibrated(name: str) -> Result:
    """Trains a policy with gated credit of two critics calibrated to it; ``head`` holds values of the curves."""
    first, other = (EnsembleCritic(member=online_kit.critic, size=2, seed=seed) for seed in (0, 1))
    with checkpoint(first) as folder:
        reward = online_kit.calibrated(folder, other)
        steps = Potential(outcome=OUTCOME, weight=1.0, decay=0.0, scale=3.0)
        found = credited(name, reward, TrustGate(advantage=steps, window=1, floor=0.0, span=0.5, total_steps=9))
    logits, depths = torch.linspace(-4, 4, 9, dtype=torch.float64).repeat(2), torch.arange(1, 3).repeat_interleave(9)
    return {**found, "head": reward.calibration(logits, depths)}


def dealt(name: str) -> Result:
    """Trains a policy on shuffled values of the critic (a control), and on a random part of the rollouts."""
    with checkpoint() as folder:
        reward = ShuffledReward(reward=online_kit.reward(folder, 0.0), weight=0.5, seed=4)
        steps = Process(outcome=OUTCOME, weight=1.0, epsilon=1e-6)
        return credited(name, reward, Subsampled(advantage=steps, share=0.5, seed=5))


def credited(name: str, reward: Reward, advantage: Advantage) -> Result:
    """Trains the embedded policy on real plays."""
    # Adam's epsilon must outweigh rounding in weights whose gradient is almost zero
    module = online_kit.learner(reward, advantage, online_kit.adamw(2e-3, epsilon=1e-4))
    return trained(name, module, grpo_kit.prompts(4, STEPS, online_kit.TASK, 2), online_kit.generation())


class Batches(LightningDataModule):
    """The same pairs in every batch; validation has them and some states."""

    def __init__(self, pairs: CriticBatch, states: CriticOracleBatch) -> None:
        super().__init__()
        self.pairs, self.states = pairs, states

    def train_dataloader(self) -> DataLoader[Any]:
        return test_critic.loader(self.pairs, STEPS)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [test_critic.loader(self.pairs, 1), test_critic.loader(self.states, 1)]


def odd_pairs() -> CriticBatch:
    """63 pairs, which two ranks cannot share evenly."""
    batch = test_critic.pairs()
    parts = (batch.state_actions, batch.positive, batch.candidate)
    batch.state_actions, batch.positive, batch.candidate = (part[1:] for part in parts)
    return batch


def critic(
    name: str,
    *callbacks: Callback,
    loss: str = "symmetric",
    negatives: int | None = None,
    learner: Any = None,
    data: LightningDataModule | None = None,
    resume: Path | None = None,
) -> Result:
    losses: dict[str, Any] = {"forward": InfoNCE, "symmetric": SymmetricInfoNCE, "binary": BinaryNCE}
    # forward InfoNCE leaves a constant per state free: its gradient is rounding, which Adam's epsilon must outweigh
    module = test_critic.module(
        critic=learner,
        loss=losses[loss](temperature=1.0),
        negatives_per_anchor=negatives,
        epsilon=1e-4,
        max_skipped_steps=1,
    )
    data = data or Batches(odd_pairs(), test_critic.oracle_states())
    return trained(name, module, data, *callbacks, resume=resume)


def critic_of_text(name: str) -> Result:
    """Trains adapters in a tiny Llama on seven sums of different lengths, each with its result as the goal."""
    encoder = test_preference.encoder()
    LoRATraining(rank=2, alpha=4.0, dropout=0.0, target_modules="all-linear", seed=0)(encoder.backbone)
    learner = TextCritic(
        encoder=encoder,
        pooling=last_pool,
        dimension=8,
        similarity=dot,
        max_length=64,
        style="annotated",
        goal_text="### Current State: [{target}]",
        seed=0,
    )
    sums = [(3, 4), (12, 7), (25, 16), (1, 1), (30, 29), (8, 2), (19, 5)]
    states = learner.tokenize([f"{a}+{b}={a + b}" for a, b in sums])
    goals = learner.tokenize([f"### Current State: [{a + b}]" for a, b in sums])
    known, positive = torch.arange(7), torch.eye(7, dtype=torch.bool)
    data = Batches(
        CriticBatch(state_actions=states, goals=goals, positive=positive, candidate=positive | True),
        CriticOracleBatch(
            state_actions=states,
            goals=goals,
            label=known % 2 == 0,
            chance=known / 7,
            depth=known // 2 % 2 + 1,
            problem=known // 4,
        ),
    )
    return critic(name, learner=learner, data=data)


def critics_together(name: str) -> Result:
    """Trains two members, each with its own loss, bootstrap and negatives."""
    learner = EnsembleCritic(member=test_critic.numeric, size=2, seed=0)
    return critic(name, loss="binary", negatives=5, learner=learner)


def warm_start(name: str, *callbacks: Callback, seed: int = 0, resume: Path | None = None) -> Result:
    return trained(name, test_warm_start.module(seed=seed), test_warm_start.data(), *callbacks, resume=resume)
