"""Callbacks that draw rollouts: before a batch reaches the module, its problems get their completions.

``training_step`` then finds ``batch.rollouts`` filled. Only these callbacks and the online critic act; all others only
watch. ``RolloutGeneration`` draws a group per problem. Two others extend it:

``DynamicSampling``, DAPO, arXiv:2503.14476: groups without a gradient are replaced by groups of other problems.

    draw P groups  →  some are all correct or all wrong  →  draw that many of other problems  →  keep what differs
                                    ↑_____________________ at most max_refills times ____________________|

A group of equal verdicts has no advantage by its outcome, though it may have one by step credit. A policy that is good,
or a task that is too hard, would therefore learn from ever fewer rollouts. The paper draws until the batch is full.
Here the number of refills is bounded, and remaining groups of equal verdicts stay. So the cost of a step is bounded and
the batch always has the same size.

``VinePPORollouts``, arXiv:2410.01679: steps are valued by Monte Carlo.

    draw P groups  →  the prefixes that end with a legal step  →  K continuations of each  →  the share correct

The state before the first step needs no draws of its own: the rollouts of the group are its continuations. The policy
does not learn from the tokens of continuations, but they cost as much as others. At equal generated tokens this arm has
fewer problems or smaller groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any, ClassVar

import lightning as L
import torch
from torch import Tensor

from callbacks.phases import Phase
from contrastive_reasoning.distributed import over_ranks
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.pass_cost import NO_WORK, Work, work_of
from contrastive_reasoning.policies.rollout_weights import whole_for_rollouts
from contrastive_reasoning.progress import phase_of
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import reads_states
from contrastive_reasoning.rollout.batch import Pick, RolloutBatch, join_groups, verdicts_of
from contrastive_reasoning.rollout.continuations import distinct, problems_of, step_prefixes, success_rates
from contrastive_reasoning.rollout.requests import RolloutEngine
from contrastive_reasoning.rollout.sampling import Sampling, Seed, derived_seed, rollout_seed
from contrastive_reasoning.tasks.base import Problem, Task


@dataclass(kw_only=True, eq=False)
class RolloutGeneration(L.Callback):
    """Fills ``batch.rollouts``: in training with a group per problem, in validation with one greedy rollout.

    Training draws are a function of (seed, the module's rollout step, problem, its earlier occurrences in the step):
    ranks together draw what one process would. Sharded parameters are gathered, or copied, once per batch.

    Raises:
        ValueError: for a group size below 2, a negative ``validation_samples``, or a ``greedy`` that samples.
    """

    engine: RolloutEngine
    group_size: int
    sampling: Sampling
    greedy: Sampling
    validation_samples: int
    """In validation, ``batch.sampled`` gets this many sampled rollouts per problem, with the same random numbers each
    time; 0: none.
    """
    copy_weights: bool
    """Whether to draw from a copy of sharded parameters, cast once to the compute dtype; else they are gathered as they
    are. Both multiply the same weights, so old log-probs agree up to the rounding of products of another shape.
    """
    seed: int

    hook_phases: ClassVar[Mapping[str, Phase]] = {"on_train_batch_start": "rollout"}
    """Hook → the phase that its time belongs to."""
    draws_once = True
    """Each rank draws as often as the others, as a server that draws for all ranks together needs it."""

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise ValueError(
                f"rollout.group_size must be at least 2: a group of {self.group_size} has nothing to compare with"
            )
        at_least(0, **{"rollout.validation_samples": self.validation_samples})
        if not self.greedy.greedy:
            raise ValueError(f"rollout.greedy.temperature must be 0, got {self.greedy.temperature}")

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Collects the rollouts of this batch. Parameters are gathered or copied once, however many draws follow."""
        with whole_for_rollouts(pl_module.policy, copied=self.copy_weights) as policy:
            self.collect(trainer, pl_module, policy, batch)

    def collect(self, trainer: L.Trainer, pl_module: Any, policy: CausalLMPolicy, batch: Any) -> None:
        """Fills ``batch.rollouts``, counts their tokens in the batch and logs the tokens per second of this rank."""
        seed, pooled = rollout_seed(self.seed, int(pl_module.rollout_step)), reads_states(pl_module.reward)
        start = perf_counter()
        batch.rollouts = self.draw(trainer, policy, batch.problems, seed=seed, pooled=pooled, earlier=batch.earlier)
        batch.generated = work_of_drawing(batch.rollouts)
        rate = batch.generated.projected / (perf_counter() - start)
        pl_module.log("train/throughput/tokens_per_second", rate, batch_size=len(batch.problems))

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Fills ``batch.rollouts`` (greedy) and ``batch.sampled``."""
        problems, samples = batch.problems, self.validation_samples
        seed = (self.seed, "validation")
        with whole_for_rollouts(pl_module.policy, copied=self.copy_weights) as policy:
            batch.rollouts = self.draw(trainer, policy, problems, group_size=1, sampling=self.greedy, seed=seed)
            if samples:
                batch.sampled = self.draw(trainer, policy, problems, group_size=samples, seed=seed)

    def draw(
        self,
        trainer: L.Trainer,
        policy: CausalLMPolicy,
        problems: Sequence[Problem],
        *,
        group_size: int | None = None,
        sampling: Sampling | None = None,
        progress: str = "drawing",
        **settings: Any,
    ) -> RolloutBatch:
        """Calls ``engine.generate`` with ``settings``; shows the completions so far under the name ``progress``."""
        size = group_size or self.group_size
        with phase_of(trainer, progress, unit="completions", total=len(problems) * size) as phase:
            return self.engine.generate(
                policy,
                problems,
                group_size=size,
                sampling=sampling or self.sampling,
                written=lambda *_: phase.move(phase.done + 1),
                **settings,
            )


def work_of_drawing(rollouts: RolloutBatch) -> Work:
    """The work to generate these completions: each prompt and each of their tokens is read once."""
    prompts = rollouts.prompt_mask.sum(dim=1).tolist()
    completions = rollouts.mask.sum(dim=1).tolist()
    return work_of(prompts, completions, [row // rollouts.group_size for row in range(len(completions))])


@dataclass(kw_only=True, eq=False)
class DynamicSampling(RolloutGeneration):
    """``RolloutGeneration`` that replaces groups of equal verdicts; validation is unchanged.

    ``batch.problems`` become those of the rollouts. Refills are a function of (seed, the module's rollout
    step, rank, refill). Logs, as ``train/rollout/…`` and means over ranks:

    - ``drawn_success`` and ``equal_groups``: the share of the first draw that is correct, and the share of its groups
      with equal verdicts. The rewards of a step are those of the groups that stay: if the policy solves most problems,
      they show less success than it has.
    - ``refills``, and ``refilled_groups``, the share of the groups that was replaced.

    Raises:
        ValueError: as for ``RolloutGeneration``, and for ``max_refills`` below 1.
    """

    task: Task
    """Verifies completions, and has the other training problems."""
    max_prompt_tokens: int | None
    """Problems with longer prompts are not drawn, as in the data; None: no limit."""
    max_refills: int

    draws_once = False
    keeps_what_differs = True
    """The verdicts on its rollouts are not representative of the policy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_refills < 1:
            raise ValueError(
                f"rollout.max_refills must be at least 1 (rollout=engine has none), got {self.max_refills}"
            )

    def collect(self, trainer: L.Trainer, pl_module: Any, policy: CausalLMPolicy, batch: Any) -> None:
        """Fills ``batch.rollouts``, then refills it; the tokens per second are those of the first draw."""
        super().collect(trainer, pl_module, policy, batch)
        pooled = batch.rollouts.pooled is not None
        correct = verified_groups(self.task, batch.rollouts)
        equal = equal_groups(correct)
        metrics = {"equal_groups": len(equal) / len(correct)}
        if bool((~correct.isnan()).any()):
            metrics["drawn_success"] = float(correct.nanmean())
        seen = {problem.id for problem in batch.problems}
        refills, first = 0, len(equal)
        while equal and refills < self.max_refills:
            seed = (self.seed, "refill", int(pl_module.rollout_step), trainer.global_rank, refills)
            problems = self.others(policy, seen, count=len(equal), seed=seed)
            if not problems:
                break
            seen |= {problem.id for problem in problems}
            fresh = self.draw(trainer, policy, problems, seed=seed, pooled=pooled, progress="drawing again")
            batch.generated += work_of_drawing(fresh)
            useless = set(equal_groups(verified_groups(self.task, fresh)))
            useful = [group for group in range(len(problems)) if group not in useless]
            places = dict(zip(equal, useful, strict=False))  # fewer useful groups: the other places stay as drawn
            picks = [Pick(1, places[p]) if p in places else Pick(0, p) for p in range(len(batch.problems))]
            batch.rollouts = join_groups([batch.rollouts, fresh], picks, pad_token_id=policy.pad_token_id)
            equal = equal[len(useful) :]
            refills += 1
        batch.problems = tuple(batch.rollouts.problems)
        metrics |= {"refills": float(refills), "refilled_groups": (first - len(equal)) / len(batch.problems)}
        for name, value in over_ranks(metrics).items():
            pl_module.log(f"train/rollout/{name}", value, batch_size=len(batch.problems))

    def others(self, policy: CausalLMPolicy, seen: set[str], *, count: int, seed: Seed) -> list[Problem]:
        """``count`` unseen training problems, or as many as there are; a function of the seed."""

        def is_allowed(problem: Problem) -> bool:
            longest = self.max_prompt_tokens
            return problem.id not in seen and (longest is None or len(policy.prompt_ids(problem.prompt)) <= longest)

        problems = self.task.problems("train")
        generator = torch.Generator().manual_seed(derived_seed((*seed, "problems")))
        order = (problems[row] for row in torch.randperm(len(problems), generator=generator).tolist())
        return list(islice(filter(is_allowed, order), count))


def verified_groups(task: Task, rollouts: RolloutBatch) -> Tensor:
    """For each completion 1 if it is correct, 0 if it is not, NaN if its verification failed: (P, G)."""
    verdicts = verdicts_of(task, rollouts)
    marks = [float(verdict.correct) if verdict.judged else float("nan") for verdict in verdicts]
    return torch.tensor(marks).view(-1, rollouts.group_size)


def equal_groups(correct: Tensor) -> list[int]:
    """Indices of the groups of (P, G) without a correct or without a wrong completion; NaN is neither."""
    return (~((correct == 1).any(dim=1) & (correct == 0).any(dim=1))).nonzero()[:, 0].tolist()


@dataclass(kw_only=True, eq=False)
class VinePPORollouts(RolloutGeneration):
    """``RolloutGeneration`` that also fills ``rollouts.prefix_values``; validation is unchanged.

    A prefix that several rollouts share is valued once. Continuations are a function of (seed, the module's rollout
    step, problem, tokens of the prefix). Logs ``train/rollout/prefixes`` and ``train/rollout/continuation_tokens`` of
    the step on this rank.

    Raises:
        ValueError: as for ``RolloutGeneration``, and for ``continuations`` below 1.
    """

    task: Task
    """Finds the steps and verifies."""
    continuations: int
    """K, the number of continuations of each prefix."""

    draws_once = False
    values_prefixes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, **{"rollout.continuations": self.continuations})

    def collect(self, trainer: L.Trainer, pl_module: Any, policy: CausalLMPolicy, batch: Any) -> None:
        """Fills ``batch.rollouts``, then values their prefixes; the tokens per second are those of the first draw."""
        super().collect(trainer, pl_module, policy, batch)
        drawn = batch.rollouts
        prefixes = step_prefixes(self.task, drawn)
        unique = distinct(prefixes)
        rates, further = {}, NO_WORK
        if unique:
            continued = self.draw(
                trainer,
                policy,
                problems_of(unique, drawn),
                group_size=self.continuations,
                seed=(self.seed, "continuation", int(pl_module.rollout_step)),
                prefixes=[prefix.tokens for prefix in unique],
                progress="continuing",
            )
            rates, further = success_rates(self.task, policy, unique, continued), work_of_drawing(continued)
        values = [[None if prefix is None else rates[prefix] for prefix in row] for row in prefixes]
        batch.rollouts = replace(drawn, prefix_values=values)
        batch.generated += further
        for name, count in {"prefixes": len(unique), "continuation_tokens": further.projected}.items():
            pl_module.log(f"train/rollout/{name}", float(count), batch_size=len(batch.problems))
