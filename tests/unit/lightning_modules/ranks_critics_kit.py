"""Critics that learn on ranks elsewhere than in a stage of their own pairs: from preferences, and beside a policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from callbacks.rollout_generation import RolloutGeneration
from contrastive_reasoning.advantages import Advantage, GroupRelative, Potential, Process, Subsampled, TrustGate
from contrastive_reasoning.critics import Calibration, EnsembleCritic, Isotonic, PreferenceCritic, save_critic
from contrastive_reasoning.critics.encoder import TextEncoder
from contrastive_reasoning.distributed import barrier, share
from contrastive_reasoning.evaluation import evaluate
from contrastive_reasoning.policies.pooling import last_pool
from contrastive_reasoning.policies.tiny import tiny_llama, train_tokenizer
from contrastive_reasoning.rewards import CalibratedReward, Reward, ShuffledReward
from contrastive_reasoning.rewards.critic import verdict_auroc
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from datamodules.reasoning_prompts import ReasoningPrompts
from tests.unit.callbacks import online_kit
from tests.unit.lightning_modules import test_preference
from tests.unit.lightning_modules.ranks_kit import STEPS, Known, Result, result, trainer


def preference(name: str) -> Result:
    """The critic's weights, and the goal that is set after the last step."""
    tokenizer = train_tokenizer(["Numbers: [21, 16], target: 37\n21+16=37;4*5-1/2"], vocab_size=280)
    tokenizer.padding_side = "right"
    backbone: Any = tiny_llama(tokenizer, hidden_size=32, layers=1).model
    encoder = TextEncoder(backbone=backbone, tokenizer=tokenizer, width=32)
    trained, known = PreferenceCritic(encoder=encoder, pooling=last_pool, max_length=96, seed=0), Known()
    module = test_preference.module(trained, gradient_clip=1.0)
    trainer(name, STEPS, [known]).fit(module, datamodule=test_preference.pairs())
    return {**result(module, known), "head": trained.goal.clone()}


def online_critic(name: str) -> Result:
    """A critic's lessons beside a policy of real plays: both copies of it, and what is remembered of the states."""
    with TemporaryDirectory() as folder:
        save_critic(online_kit.critic(), Path(folder), {})
        reward = online_kit.reward(folder)
        module, loop = online_kit.learner(reward), online_kit.online()
        data = ReasoningPrompts(
            task=online_kit.TASK, problems_per_step=4, validation_problems=2, steps=3, max_prompt_tokens=None, seed=0
        )
        trainer(name, 3, [generation(), loop], limit_val_batches=0).fit(module, datamodule=data)
    return {
        "learned": online_kit.flat(loop.lessons.critic),
        "scoring": online_kit.flat(reward.critic),
        "start": online_kit.flat(online_kit.critic()),
        "states": loop.buffer.state_dict(),
        "refreshes": loop.refreshes,
    }


def foretold() -> float | None:
    """How well a critic foretells the verdicts on the plays of a few problems, of which each rank has its share."""
    with TemporaryDirectory() as folder:
        save_critic(online_kit.critic(), Path(folder), {})
        problems = share(online_kit.TASK.problems("train")[:8])
        sampling = generation().sampling
        rollouts = Engine(max_batch_tokens=100_000).generate(
            online_kit.policy(), problems, group_size=4, sampling=sampling, seed=(0,)
        )
        return verdict_auroc(online_kit.reward(folder), online_kit.TASK, rollouts)


class Meeting(Engine):
    """Its ranks wait for each other, as those do that share a server."""

    def generate(self, *args: Any, **settings: Any) -> RolloutBatch:
        barrier()
        return super().generate(*args, **settings)


def of_one_problem() -> dict[str, float]:
    """An evaluation in which all ranks but the first have no problem."""
    drawing = generation()
    found = evaluate(
        online_kit.policy(),
        online_kit.TASK,
        online_kit.TASK.problems("train")[3:4],
        engine=Meeting(max_batch_tokens=100_000),
        samples=4,
        sampling=drawing.sampling,
        greedy=drawing.greedy,
        k_values=[4],
        seed=0,
    )
    return dict(found.metrics)


def calibrated(name: str) -> Result:
    """A policy's weights by the gated credit of two critics calibrated to it, and for its head what the curves say."""
    with TemporaryDirectory() as folder:
        save_critic(EnsembleCritic(member=online_kit.critic, size=2, seed=0), Path(folder), {})
        source = online_kit.reward(folder, 0.0, EnsembleCritic(member=online_kit.critic, size=2, seed=1))
        curves = Calibration(curve=Isotonic(), least_visits=5)
        reward = CalibratedReward(source=source, calibration=curves, batches=2, refit_every=1, warmup_steps=1)
        outcome = GroupRelative(normalise_std=True, epsilon=1e-6)
        steps = Potential(outcome=outcome, weight=1.0, decay=0.0, scale=3.0)
        gate = TrustGate(advantage=steps, window=1, floor=0.0, span=0.5, total_steps=9)
        found = credited(name, reward, gate)
    logits, depths = torch.linspace(-4, 4, 9, dtype=torch.float64).repeat(2), torch.arange(1, 3).repeat_interleave(9)
    return {**found, "head": curves(logits, depths)}


def dealt(name: str) -> Result:
    """A policy's weights by a placebo, the critic's values on other steps, and by the rollouts that were drawn."""
    with TemporaryDirectory() as folder:
        save_critic(online_kit.critic(), Path(folder), {})
        reward = ShuffledReward(reward=online_kit.reward(folder, 0.0), weight=0.5, seed=4)
        steps = Process(outcome=GroupRelative(normalise_std=True, epsilon=1e-6), weight=1.0, epsilon=1e-6)
        return credited(name, reward, Subsampled(advantage=steps, share=0.5, seed=5))


def credited(name: str, reward: Reward, advantage: Advantage) -> Result:
    """The embedded policy on real plays."""
    # Adam's epsilon must outweigh rounding in weights whose gradient is next to nothing
    module = online_kit.learner(reward, advantage, online_kit.adamw(2e-3, epsilon=1e-4))
    data = ReasoningPrompts(
        task=online_kit.TASK, problems_per_step=4, validation_problems=2, steps=STEPS, max_prompt_tokens=None, seed=0
    )
    known = Known()
    trainer(name, STEPS, [generation(), known]).fit(module, datamodule=data)
    return result(module, known)


def generation() -> RolloutGeneration:
    """Completions long enough for whole plays."""
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=32, stop=[])
    return RolloutGeneration(
        engine=Engine(max_batch_tokens=100_000),
        group_size=4,
        sampling=sampling,
        greedy=replace(sampling, temperature=0.0),
        validation_samples=0,
        seed=3,
    )
