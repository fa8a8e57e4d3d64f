"""Batches of problems for GRPO. The problems of a step depend only on (seed, step)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning import LightningDataModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import DataLoader

from contrastive_reasoning.evaluation.suite import MAIN
from contrastive_reasoning.policies.pass_cost import NO_WORK
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import earlier_occurrences
from contrastive_reasoning.tasks.base import Problem, Task

LISTED = 1_000
"""Maximum number of rows in the table of problems left out."""
TRAINING_PROBLEMS = "training_problems"
"""The setting for validation on training problems; their metrics are ``val/training_problems/…``."""
LEFT_OUT = "train/prompts_left_out"
"""Name of the metric that counts the problems left out, and of the table that lists them."""


class ProblemBatch:
    """P problems, and the rollouts that a callback draws for them.

    It is deliberately a plain class. When Lightning moves a batch to the device, it traverses dicts, lists and
    dataclasses and raises on frozen ones, but returns a plain object unchanged. ``training_step`` therefore receives
    the same object that the callback has filled.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        counted: int | None = None,
        setting: str = MAIN,
        earlier: Sequence[int] | None = None,
    ) -> None:
        self.problems = tuple(problems)
        self.earlier = earlier_occurrences([one.id for one in problems]) if earlier is None else list(earlier)
        """For each problem the number of its occurrences before it in the step's batch, on all ranks."""
        self.setting = setting
        """For validation: the setting, as in a suite: held-out problems (``main``) or training problems."""
        self.counted = len(self.problems) if counted is None else counted
        """How many of the problems, from the first on, are this rank's own; the rest is padding and not scored."""
        self.rollouts: RolloutBatch | None = None
        """Sampled in training, greedy in validation."""
        self.sampled: RolloutBatch | None = None
        """In validation: several sampled rollouts per problem."""
        self.generated = NO_WORK
        """All generated for this training step, including discarded rollouts; ``projected`` are its tokens."""

    def __len__(self) -> int:
        return len(self.problems)


@dataclass(kw_only=True, eq=False, repr=False)
class ReasoningPrompts(LightningDataModule):
    """Batches of problems for rollouts.

    Training iterates over the training problems in a permutation that depends on (seed, epoch). A batch may span the
    end of one epoch and the beginning of the next. A resumed run continues at the module's ``rollout_step``. Validation
    uses a fixed set.

    With R ranks, rank r has every R-th problem of a batch, starting with the r-th. All ranks together have the problems
    of a single process, and each has the same number. An uneven validation batch is padded with a problem that is not
    scored.
    """

    task: Task
    problems_per_step: int
    """P, the number of problems in one rollout batch."""
    validation_problems: int
    """Number of problems used for validation: the first ones of the validation split."""
    training_problems: int
    """Number of training problems evaluated in addition: the first ones of the training split."""
    steps: int
    """Number of rollout batches on which the policy is trained, one Lightning epoch. The batches for warming up a
    reward alone (the module's ``warmup_steps``) come before and are not included.
    """
    max_prompt_tokens: int | None
    """Training problems with longer prompts are left out. None: no limit."""
    seed: int

    def __post_init__(self) -> None:
        super().__init__()
        if self.max_prompt_tokens is not None:
            at_least(1, max_prompt_tokens=self.max_prompt_tokens)
        at_least(1, problems_per_step=self.problems_per_step)
        at_least(0, validation_problems=self.validation_problems)
        at_least(0, training_problems=self.training_problems)

    def train_dataloader(self) -> ProblemSteps:
        module = self.trainer.lightning_module if self.trainer is not None else None
        rank, ranks = place_of(self.trainer)
        parts = ranks * getattr(module, "minibatches_per_rollout", 1)
        if self.problems_per_step % parts:
            raise ValueError(
                f"{self.problems_per_step} problems cannot be divided evenly over ranks ({ranks}) × mini-batches "
                f"({parts // ranks}): take a multiple of {parts}"
            )
        if self.steps == 0:
            rank_zero_warn("the policy is not trained: steps is 0")
        return ProblemSteps(
            problems=self._short_enough(self.task.problems("train")),
            problems_per_step=self.problems_per_step,
            steps=self.steps + getattr(module, "warmup_steps", 0),
            first_step=getattr(module, "rollout_step", 0),
            seed=self.seed,
            rank=rank,
            ranks=ranks,
        )

    def _short_enough(self, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Problems whose prompt has at most ``max_prompt_tokens`` tokens for the module's policy; reports the others.

        Raises:
            ValueError: if no problem is left.
        """
        if self.max_prompt_tokens is None or self.trainer is None:
            return problems
        policy: Any = self.trainer.lightning_module.policy
        measured = [(problem, len(policy.prompt_ids(problem.prompt))) for problem in problems]
        kept = [problem for problem, length in measured if length <= self.max_prompt_tokens]
        too_long = [(problem.id, length) for problem, length in measured if length > self.max_prompt_tokens]
        if not too_long:
            return kept
        if not kept:
            raise ValueError(
                f"each of the {len(problems)} training prompts has more than max_prompt_tokens="
                f"{self.max_prompt_tokens} tokens, the shortest {min(length for _, length in too_long)}"
            )
        named = ", ".join([id for id, _ in too_long[:5]]) + (", …" if len(too_long) > 5 else "")
        rank_zero_warn(
            f"{len(too_long)} of {len(problems)} training problems are left out: "
            f"their prompts have more than {self.max_prompt_tokens} tokens ({named})"
        )
        step = getattr(self.trainer.lightning_module, "rollout_step", 0)
        rows = [{"problem": id, "prompt_tokens": length} for id, length in too_long[:LISTED]]
        for logger in self.trainer.loggers:
            logger.log_metrics({LEFT_OUT: float(len(too_long))}, step=step)
            if hasattr(logger, "log_page"):  # the run folder's; others have a log_table of another form
                logger.log_table(LEFT_OUT, rows, step=step)  # pyright: ignore[reportAttributeAccessIssue]
        return kept

    def val_dataloader(self) -> DataLoader[Any]:
        problems = self.task.problems("validation")
        if len(problems) < self.validation_problems:
            raise ValueError(
                f"validation_problems is {self.validation_problems}, but the split has only {len(problems)} problems"
            )
        tried = {MAIN: problems[: self.validation_problems]}
        if self.training_problems:
            tried[TRAINING_PROBLEMS] = self.task.problems("train")[: self.training_problems]
        if not any(tried.values()):
            rank_zero_warn("nothing is validated: validation_problems is 0")
        size, (rank, ranks) = self.problems_per_step, place_of(self.trainer)
        batches: Any = [
            own_batch(kept[start : start + size], rank=rank, ranks=ranks, setting=setting)
            for setting, kept in tried.items()
            for start in range(0, len(kept), size)
        ]
        return DataLoader(batches, batch_size=None)


def place_of(trainer: Trainer | None) -> tuple[int, int]:
    """The rank of this process, and the number of ranks."""
    return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)


def own_batch(problems: Sequence[Problem], *, rank: int, ranks: int, setting: str = MAIN) -> ProblemBatch:
    """A rank's problems of a batch, padded with the batch's first problem if other ranks have one more."""
    own = list(problems[rank::ranks])
    longest = -(-len(problems) // ranks)
    return ProblemBatch([*own, *[problems[0]] * (longest - len(own))], counted=len(own), setting=setting)


@dataclass(kw_only=True)
class ProblemSteps:
    """A rank's batches of a run from ``first_step`` on. It resumes without a state: the step determines the batch."""

    problems: Sequence[Problem]
    problems_per_step: int
    steps: int
    first_step: int
    seed: int
    rank: int
    ranks: int

    def __post_init__(self) -> None:
        if not self.problems:
            raise ValueError("the training split has no problems")

    def __len__(self) -> int:
        """Steps of the whole run, including those before ``first_step``: Lightning resumes the checkpoint's count."""
        return self.steps

    def __iter__(self) -> Iterator[ProblemBatch]:
        for step in range(self.first_step, self.steps):
            rows = rows_of_step(step, self.problems_per_step, len(self.problems), seed=self.seed)
            problems = [self.problems[row] for row in rows]
            earlier = earlier_occurrences([one.id for one in problems])
            own = slice(self.rank, None, self.ranks)
            yield ProblemBatch(problems[own], earlier=earlier[own])

    def state_dict(self) -> dict[str, int]:
        """Returns an empty state; the method marks the loader for Lightning as resumable in the middle of an epoch."""
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restores nothing: ``first_step`` comes from the module's own count."""


def rows_of_step(step: int, size: int, total: int, *, seed: int) -> list[int]:
    """The indices of a step's problems out of ``total``: the next ``size`` of an endless sequence of permutations."""
    places = range(step * size, (step + 1) * size)
    orders = {}
    for epoch in {place // total for place in places}:
        generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**64)
        orders[epoch] = torch.randperm(total, generator=generator).tolist()
    return [orders[place // total][place % total] for place in places]
