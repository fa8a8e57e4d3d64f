"""Rollouts whose steps are valued by Monte Carlo, as VinePPO has it (arXiv:2410.01679): going on from each of them.

        draw P groups  →  the prefixes that end with a legal step  →  K continuations of each  →  the share correct

The state before the first step needs no draws of its own: the rollouts of the group are its continuations. Those of the
other states are verified and thrown away. Nothing is learned from their tokens, which cost as much as any others: a
comparison at equal generated tokens gives this arm fewer problems or smaller groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lightning as L

from callbacks.rollout_generation import RolloutGeneration, work_of_drawing
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import NO_WORK
from contrastive_reasoning.rollout.base import RolloutEngine
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.continuations import Prefix, distinct, problems_of, step_prefixes, success_rates
from contrastive_reasoning.rollout.sampling import Sampling, Seed
from contrastive_reasoning.tasks.base import Task


class VinePPORollouts(RolloutGeneration):
    """``RolloutGeneration`` that also fills ``rollouts.prefix_values``; validation is as there.

    A prefix that several rollouts share is valued once. Continuations are a function of (seed, the module's
    rollout step, problem, tokens of the prefix). Logs ``train/rollout/prefixes`` and
    ``train/rollout/continuation_tokens`` of the step on this rank.

    Args:
        task: finds the steps and verifies.
        continuations: K, drawn from each prefix.

    The others are those of ``RolloutGeneration``.

    Raises:
        ValueError: as there, and for ``continuations`` below 1.
    """

    values_prefixes = True

    def __init__(
        self,
        *,
        engine: RolloutEngine,
        group_size: int,
        sampling: Sampling,
        greedy: Sampling,
        validation_samples: int,
        seed: int,
        task: Task,
        continuations: int,
    ) -> None:
        super().__init__(
            engine=engine,
            group_size=group_size,
            sampling=sampling,
            greedy=greedy,
            validation_samples=validation_samples,
            seed=seed,
        )
        if continuations < 1:
            raise ValueError(f"rollout.continuations must be at least 1, got {continuations}")
        self.task = task
        self.continuations = continuations

    def collect(self, trainer: L.Trainer, pl_module: Any, batch: Any) -> None:
        """Fill ``batch.rollouts``, then value their prefixes; the tokens per second are those of the first draw."""
        super().collect(trainer, pl_module, batch)
        drawn = batch.rollouts
        prefixes = step_prefixes(self.task, drawn)
        unique = distinct(prefixes)
        seed = (self.seed, "continuation", int(pl_module.rollout_step))
        continued = self._continued(trainer, pl_module.policy, unique, drawn, seed) if unique else None
        rates = {} if continued is None else success_rates(self.task, pl_module.policy, unique, continued)
        values = [[None if prefix is None else rates[prefix] for prefix in row] for row in prefixes]
        batch.rollouts = replace(drawn, prefix_values=values)
        further = NO_WORK if continued is None else work_of_drawing(continued)
        batch.generated += further
        totals = {"prefixes": len(unique), "continuation_tokens": further.projected}
        for name, total in totals.items():
            pl_module.log(f"train/rollout/{name}", float(total), batch_size=len(batch.problems))

    def _continued(
        self, trainer: L.Trainer, policy: CausalLMPolicy, unique: Sequence[Prefix], drawn: RolloutBatch, seed: Seed
    ) -> RolloutBatch:
        return self.draw(
            trainer,
            policy,
            problems_of(unique, drawn),
            group_size=self.continuations,
            sampling=self.sampling,
            seed=seed,
            prefixes=[prefix.tokens for prefix in unique],
            progress="continuing",
        )
