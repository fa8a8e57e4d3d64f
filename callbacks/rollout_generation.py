"""Draws the rollouts: before each batch reaches the module, its problems get their completions.

``training_step`` finds ``batch.rollouts`` filled. Of all callbacks only this one and the online critic act; the others
watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import lightning as L

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import Work, work_of
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.progress import phase_of
from contrastive_reasoning.rewards.base import reads_states
from contrastive_reasoning.rollout.base import RolloutEngine
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Problem


class RolloutGeneration(L.Callback):
    """Fills ``batch.rollouts`` with a group per problem while training, one greedy rollout while validating.

    While validating ``batch.sampled`` gets ``validation_samples`` sampled rollouts per problem (0: none), the same
    random numbers each time. Training draws are a function of (seed, the module's rollout step, problem): ranks have
    different problems, and together draw what one process would. (A problem that occurs twice in a step, at the edge of
    an epoch, gets equal rollouts where its two rows are on two ranks.) Sharded parameters are gathered once a batch.

    Raises:
        ValueError: for a group size below 2, a negative ``validation_samples``, or a ``greedy`` that samples.
    """

    def __init__(
        self,
        *,
        engine: RolloutEngine,
        group_size: int,
        sampling: Sampling,
        greedy: Sampling,
        validation_samples: int,
        seed: int,
    ) -> None:
        if group_size < 2:
            raise ValueError(
                f"rollout.group_size must be at least 2: a group of {group_size} has nothing to compare with"
            )
        if validation_samples < 0:
            raise ValueError(f"rollout.validation_samples must be at least 0, got {validation_samples}")
        if not greedy.greedy:
            raise ValueError(f"rollout.greedy.temperature must be 0, got {greedy.temperature}")
        self.engine = engine
        self.group_size = group_size
        self.sampling = sampling
        self.greedy = greedy
        self.validation_samples = validation_samples
        self.seed = seed

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Collect for this batch. Every rank gathers parameters once, however often it then draws."""
        with gathered(pl_module.policy):
            self.collect(trainer, pl_module, batch)

    def collect(self, trainer: L.Trainer, pl_module: Any, batch: Any) -> None:
        """Fill ``batch.rollouts``, count their tokens in the batch and log the tokens per second of this rank."""
        seed = (self.seed, "rollout", int(pl_module.rollout_step))
        start = perf_counter()
        pooled = reads_states(pl_module.reward)
        batch.rollouts = self.draw(
            trainer,
            pl_module.policy,
            batch.problems,
            group_size=self.group_size,
            sampling=self.sampling,
            seed=seed,
            pooled=pooled,
        )
        batch.generated = work_of_drawing(batch.rollouts)
        rate = batch.generated.projected / (perf_counter() - start)
        pl_module.log("train/throughput/tokens_per_second", rate, batch_size=len(batch.problems))

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Fill ``batch.rollouts`` (greedy) and ``batch.sampled``."""
        policy, problems, samples = pl_module.policy, batch.problems, self.validation_samples
        seed = (self.seed, "validation")
        with gathered(policy):
            batch.rollouts = self.draw(trainer, policy, problems, group_size=1, sampling=self.greedy, seed=seed)
            if samples:
                batch.sampled = self.draw(
                    trainer, policy, problems, group_size=samples, sampling=self.sampling, seed=seed
                )

    def draw(
        self,
        trainer: L.Trainer,
        policy: CausalLMPolicy,
        problems: Sequence[Problem],
        *,
        group_size: int,
        progress: str = "drawing",
        **settings: Any,
    ) -> RolloutBatch:
        """``engine.generate`` with ``settings``; completions are counted where progress is shown, under that name."""
        total = len(problems) * group_size
        with phase_of(trainer, progress, unit="completions", total=total) as phase:
            written = (lambda *_: phase.move(phase.done + 1)) if phase.visible else None
            return self.engine.generate(policy, problems, group_size=group_size, written=written, **settings)


def work_of_drawing(rollouts: RolloutBatch) -> Work:
    """What these completions took to generate: each prompt and each of their tokens read once."""
    prompts = rollouts.prompt_mask.sum(dim=1).tolist()
    completions = rollouts.mask.sum(dim=1).tolist()
    return work_of(prompts, completions, [row // rollouts.group_size for row in range(len(completions))])
