"""Dynamic sampling of DAPO, arXiv:2503.14476: groups without a gradient are replaced by groups of other problems.

        draw P groups  →  some are all correct or all wrong  →  draw that many of other problems  →  keep what differs
                                        ↑_____________________ at most max_refills times ____________________|

A group of equal verdicts has no advantage by its outcome (it may have by credit of steps), so a policy that is good, or
a task that is too hard, would learn from ever fewer rollouts. The paper draws until the batch is full; here refills are
bounded and then such groups stay, so the cost of a step is bounded and the batch always has the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import lightning as L
import torch
from torch import Tensor

from callbacks.rollout_generation import RolloutGeneration, work_of_drawing
from contrastive_reasoning.distributed import over_ranks
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.base import RolloutEngine
from contrastive_reasoning.rollout.batch import Pick, RolloutBatch, join_groups, verdicts_of
from contrastive_reasoning.rollout.sampling import Sampling, Seed, derived_seed
from contrastive_reasoning.tasks.base import Problem, Task


class DynamicSampling(RolloutGeneration):
    """``RolloutGeneration`` that replaces groups of equal verdicts; validation is as there.

    ``batch.problems`` become those of the rollouts. Refills are a function of (seed, the module's rollout
    step, rank, refill). Logs, as ``train/rollout/…`` and means over ranks:

    - ``drawn_success`` and ``equal_groups``: the share of the first draw that is correct, and of its groups that are of
      equal verdicts. The rewards of a step are those of the groups that stay: where the policy solves most problems,
      they show less success than it has.
    - ``refills``, and ``refilled_groups``, the share of the groups that was replaced.

    Args:
        task: verifies, and has the other training problems.
        max_prompt_tokens: problems with longer prompts are not drawn, as in the data; None: any is.
        max_refills: the most refills in a step.

    The others are those of ``RolloutGeneration``.

    Raises:
        ValueError: as there, and for ``max_refills`` below 1.
    """

    keeps_what_differs = True
    """The verdicts on its rollouts are not representative of the policy."""

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
        max_prompt_tokens: int | None,
        max_refills: int,
    ) -> None:
        super().__init__(
            engine=engine,
            group_size=group_size,
            sampling=sampling,
            greedy=greedy,
            validation_samples=validation_samples,
            seed=seed,
        )
        if max_refills < 1:
            raise ValueError(f"rollout.max_refills must be at least 1 (rollout=engine has none), got {max_refills}")
        self.task = task
        self.max_prompt_tokens = max_prompt_tokens
        self.max_refills = max_refills

    def collect(self, trainer: L.Trainer, pl_module: Any, batch: Any) -> None:
        """Fill ``batch.rollouts``, then refill it; the tokens per second are those of the first draw."""
        super().collect(trainer, pl_module, batch)
        correct = verified_groups(self.task, batch.rollouts)
        equal = equal_groups(correct)
        drawn = {"equal_groups": len(equal) / len(correct)}
        if bool((~correct.isnan()).any()):
            drawn["drawn_success"] = float(correct.nanmean())
        seen = {problem.id for problem in batch.problems}
        refills, first = 0, len(equal)
        while equal and refills < self.max_refills:
            seed = (self.seed, "refill", int(pl_module.rollout_step), trainer.global_rank, refills)
            problems = self._others(pl_module.policy, seen, count=len(equal), seed=seed)
            if not problems:
                break
            seen |= {problem.id for problem in problems}
            fresh = self._fresh(trainer, pl_module, problems, seed, pooled=batch.rollouts.pooled is not None)
            batch.generated += work_of_drawing(fresh)
            batch.rollouts, equal = self._refilled(batch.rollouts, equal, fresh, pl_module.policy.pad_token_id)
            refills += 1
        batch.problems = tuple(batch.rollouts.problems)
        metrics = {**drawn, "refills": float(refills), "refilled_groups": (first - len(equal)) / len(batch.problems)}
        for name, value in over_ranks(metrics).items():
            pl_module.log(f"train/rollout/{name}", value, batch_size=len(batch.problems))

    def _others(self, policy: CausalLMPolicy, seen: set[str], *, count: int, seed: Seed) -> list[Problem]:
        def allowed(problem: Problem) -> bool:
            longest = self.max_prompt_tokens
            return problem.id not in seen and (longest is None or len(policy.prompt_ids(problem.prompt)) <= longest)

        return draw_problems(self.task.problems("train"), allowed, count=count, seed=seed)

    def _fresh(
        self, trainer: L.Trainer, pl_module: Any, problems: Sequence[Problem], seed: Seed, *, pooled: bool
    ) -> RolloutBatch:
        return self.draw(
            trainer,
            pl_module.policy,
            problems,
            group_size=self.group_size,
            sampling=self.sampling,
            seed=seed,
            pooled=pooled,
            progress="drawing anew",
        )

    def _refilled(
        self, rollouts: RolloutBatch, equal: Sequence[int], fresh: RolloutBatch, pad_token_id: int
    ) -> tuple[RolloutBatch, list[int]]:
        """The rollouts with as many of their equal groups replaced as fresh ones differ, and which are equal still."""
        useless = set(equal_groups(verified_groups(self.task, fresh)))
        useful = [group for group in range(len(fresh.problems)) if group not in useless]
        places = dict(zip(equal, useful, strict=False))
        picks = [Pick(1, places[p]) if p in places else Pick(0, p) for p in range(len(rollouts.problems))]
        return join_groups([rollouts, fresh], picks, pad_token_id=pad_token_id), list(equal[len(useful) :])


def verified_groups(task: Task, rollouts: RolloutBatch) -> Tensor:
    """Of each completion 1 where it is correct, 0 where it is not, NaN where its judging failed: (P, G)."""
    verdicts = verdicts_of(task, rollouts)
    marks = [float(verdict.correct) if verdict.judged else float("nan") for verdict in verdicts]
    return torch.tensor(marks).view(-1, rollouts.group_size)


def equal_groups(correct: Tensor) -> list[int]:
    """The groups, of (P, G), in which no completion is correct or none is wrong; one without a verdict is neither."""
    return (~((correct == 1).any(dim=1) & (correct == 0).any(dim=1))).nonzero()[:, 0].tolist()


def draw_problems(
    problems: Sequence[Problem], allowed: Callable[[Problem], bool], *, count: int, seed: Seed
) -> list[Problem]:
    """``count`` of the problems that are allowed, or as many as there are; a function of the seed."""
    generator = torch.Generator().manual_seed(derived_seed((*seed, "problems")))
    order = (problems[row] for row in torch.randperm(len(problems), generator=generator).tolist())
    return list(islice(filter(allowed, order), count))
