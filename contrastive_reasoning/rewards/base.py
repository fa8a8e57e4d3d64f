"""The interface of rewards, the credit that they return, and the handling of rollouts on which a reward fails.

A credit holds a number per rollout, its named parts, and the values of single steps. A few rollouts without a reward
are left out of the update; too many end the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task, Verdict
from contrastive_reasoning.workers.failures import RewardFailed


class StepCredit(NamedTuple):
    """The value of one step, on the tokens first … last (inclusive) of its completion."""

    first_token: int
    last_token: int
    value: float
    depth: int
    """The count of numbers left after it; 0, −1, −2, … where states are not numbers left. Equal depths are compared."""
    again: bool = False
    """The completion had been in this state before."""
    legal: bool = True
    """False: the rules forbid the step, so it reaches no state and has value 0; ``depth`` is that of the state it
    would have reached."""
    settled_token: int | None = None
    """The token that shows that the step has ended, for example its separator. It lies beyond the completion if only
    the completion's end shows it. None: ``last_token``."""
    lost: bool = False
    """Whether the completion can no longer be correct after the step."""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """The reward of each rollout, each source under its own name."""

    outcome: Float[Tensor, " B"]
    """The reward of the whole rollout, which is compared within the group."""
    parts: Mapping[str, Float[Tensor, " B"]]
    """The unweighted number of each source per rollout; logged as ``train/reward/<part>``."""
    steps: Sequence[Sequence[StepCredit]] | None = None
    """The legal steps of each rollout in order of writing; None if the reward does not value steps."""
    illegal: Sequence[Sequence[StepCredit]] | None = None
    """The steps of each rollout that the rules forbid, none for tasks whose states are not numbers left; None if the
    reward does not value steps."""
    starts: Sequence[float] | None = None
    """The value of the state before the first step of each rollout; None if the reward does not value it."""
    verdicts: Sequence[Verdict] | None = None
    """The verdict on each rollout, counted by status; None if nothing was verified."""
    failures: Mapping[int, Verdict] = field(default_factory=dict)
    """Row → why the reward failed on it: timeout or error, and the reason. The ``outcome`` of such a row is
    meaningless: the row is left out of its group and has an advantage of exactly 0."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Further quantities of the batch, as ``source/quantity``; logged under ``train/``."""

    @property
    def named(self) -> str:
        """The names of the parts, for error messages."""
        return ", ".join(self.parts) or "nothing"

    def plus(
        self, name: str, part: Float[Tensor, " B"], *, weight: float = 1.0, metrics: Mapping[str, float] | None = None
    ) -> Credit:
        """Returns this credit with a further part, ``weight`` times which is added to the outcome, and its metrics."""
        return replace(
            self,
            outcome=self.outcome + weight * part,
            parts={**self.parts, name: part},
            metrics={**self.metrics, **(metrics or {})},
        )


def verdicts_on(credit: Credit, task: Task, rollouts: RolloutBatch) -> Sequence[Verdict]:
    """Returns the verdicts of the credit, or those of the task if the credit has none."""
    return verdicts_of(task, rollouts) if credit.verdicts is None else credit.verdicts


@runtime_checkable
class Reward(Protocol):
    def __call__(self, rollouts: RolloutBatch) -> Credit: ...


@runtime_checkable
class TrainedReward(Reward, Protocol):
    """A reward that is trained online: it owns its optimizer, and both are saved in the checkpoint."""

    @property
    def warmup_steps(self) -> int:
        """The number of rollout batches at the beginning that train only the reward, not the policy."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def move_with_moments(module: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Moves a module that a reward trains, together with its optimizer's moments."""
    if next(module.parameters()).device != device:
        module.to(device)
        # moments do not follow their parameters by themselves: loading casts each to its parameter's device
        optimizer.load_state_dict(optimizer.state_dict())


def reads_states(reward: Reward) -> bool:
    """Returns whether the reward needs ``rollouts.pooled``, which an engine leaves out by default."""
    return bool(getattr(reward, "reads_states", False))


INNER = ("outcome", "reward", "source")
"""Attribute names under which a reward holds another; a sum holds several under ``rewards``."""


def parts_of(reward: Any) -> Iterator[Any]:
    """Yields a reward and its parts, recursively."""
    yield reward
    inner = [getattr(reward, name, None) for name in INNER]
    for part in (*inner, *getattr(reward, "rewards", {}).values()):
        if part is not None:
            yield from parts_of(part)


def refuse_learning(owner: str, *rewards: Reward) -> None:
    """Raises ValueError with the name of a reward that learns, if one of ``rewards`` does.

    Such a reward must be the outermost one: only there is it warmed up and saved in the checkpoint.
    """
    for reward in rewards:
        if isinstance(reward, TrainedReward):
            inner = type(reward).__name__
            raise ValueError(f"{inner} learns, so {owner} cannot hold it: it must be the outermost reward")


def refuse_adding(owner: str, reward: Reward) -> None:
    """Raises ValueError with the name of a part of ``reward`` that adds its step values to the outcome.

    A reward that replaces step values, or weights them itself, cannot hold such a part.
    """
    for part, own in _parts_that_add(reward):
        inner = type(part).__name__
        raise ValueError(
            f"{inner} adds its values to the outcome: inside {owner} it needs weight 0 ({owner} takes {own} itself)"
        )


def _parts_that_add(reward: Any) -> Iterator[tuple[Any, float]]:
    """Yields the parts of a reward that add step values to the outcome, each with its weight."""
    if own := getattr(reward, "weight", 0.0):
        yield reward, own
    for name, part in getattr(reward, "rewards", {}).items():
        if reward.weights[name]:
            yield from _parts_that_add(part)


STATUSES = ("timeout", "error")
"""The statuses of a reward's failure; the verdict's reason holds the cause."""


def refuse_too_many(failures: Mapping[int, Verdict], rollouts: int, *, limit: float) -> None:
    """Raises RewardFailed if more than the share ``limit`` of the batch has no reward.

    The share is taken over the rollouts of all ranks. The error is raised on every rank and contains the share, the
    limit and the first cause.
    """
    first = failures[min(failures)] if failures else None
    found = gather((len(failures), rollouts, first))
    failed, drawn = sum(count for count, _, _ in found), sum(count for _, count, _ in found)
    if failed <= limit * drawn:
        return
    cause = next(verdict for _, _, verdict in found if verdict is not None)
    raise RewardFailed(
        f"the reward failed on {failed} of {drawn} rollouts ({failed / drawn:.0%}), more than "
        f"reward.max_failures={limit:g} allows; the first: {cause.status}, {cause.reason}"
    )


class FailureWarning:
    """Warns of the first failure of each status; the metrics count all failures. ``key`` names what failed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._warned: set[str] = set()

    def __call__(self, failures: Mapping[int, Verdict]) -> None:
        for verdict in failures.values():
            if verdict.status not in self._warned:
                self._warned.add(verdict.status)
                warnings.warn(
                    f"{self.key} failed on a rollout, which is left out; this warning comes once, the share is "
                    f"train/reward/failed_{verdict.status}: {verdict.reason}",
                    stacklevel=3,
                )


def fill_with_mean(numbers: Sequence[float | None]) -> list[float]:
    """Replaces each None by the mean of the other numbers, or by 0 without any, so that the logged mean is theirs."""
    given = [number for number in numbers if number is not None]
    mean = sum(given) / len(given) if given else 0.0
    return [mean if number is None else number for number in numbers]


def failure_metrics(failures: Mapping[int, Verdict], rollouts: int) -> dict[str, float]:
    """Returns the share of rollouts without a reward, in total and by status; logged under ``train/``."""
    statuses = [verdict.status for verdict in failures.values()]
    shares = {f"reward/failed_{status}": statuses.count(status) / rollouts for status in STATUSES}
    return {"reward/failed": len(failures) / rollouts, **shares}
