"""What a reward returns for a rollout batch, and what happens to rollouts that it failed on.

A credit is a number per rollout, its parts by name, and values of single steps. A few rollouts without a reward are
left out of the step; too many end the run.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task, Verdict


class StepCredit(NamedTuple):
    """The value of one step, on the tokens first … last (inclusive) of its completion."""

    first_token: int
    last_token: int
    value: float
    depth: int
    """How many numbers are left after it; 0, −1, −2, … where a task's states are no sequences. Equals are compared."""
    again: bool = False
    """The completion had been in this state before."""
    legal: bool = True
    """False: the rules forbade it, it reached no state and is worth 0; ``depth`` is where it would have led."""
    settled_token: int | None = None
    """The token by which the step is known to have ended, its separator's for example; beyond the completion where only
    its end shows that. None: ``last_token``."""
    lost: bool = False
    """Whether the completion cannot be right any more after it."""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """The reward of each rollout, every source by its own name."""

    outcome: Float[Tensor, " B"]
    """The reward of the whole rollout: what the group compares."""
    parts: Mapping[str, Float[Tensor, " B"]]
    """Each source's own, unweighted number per rollout; logged as ``train/reward/<part>``."""
    steps: Sequence[Sequence[StepCredit]] | None = None
    """Per rollout its legal steps in order of writing; None where the reward knows no steps."""
    illegal: Sequence[Sequence[StepCredit]] | None = None
    """Per rollout the steps that the rules forbade; None where the reward knows no steps or the task no such depth."""
    starts: Sequence[float] | None = None
    """Per rollout the value of the state before its first step; None where the reward does not know it."""
    verdicts: Sequence[Verdict] | None = None
    """The verifier's decision on each rollout, counted by status; None where nothing was verified."""
    failures: Mapping[int, Verdict] = field(default_factory=dict)
    """Row → why the reward failed on it: timeout or error, and the reason. Its ``outcome`` means nothing: the row is
    left out of its group and has an advantage of exactly 0."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Further quantities of the batch, as ``source/quantity``; logged under ``train/``."""

    @property
    def named(self) -> str:
        """The names of its parts, for a message."""
        return ", ".join(self.parts) or "nothing"


def verdicts_on(credit: Credit, task: Task, rollouts: RolloutBatch) -> Sequence[Verdict]:
    """Those that the reward gave with its credit; where it gave none the task judges."""
    return verdicts_of(task, rollouts) if credit.verdicts is None else credit.verdicts


@runtime_checkable
class Reward(Protocol):
    def __call__(self, rollouts: RolloutBatch) -> Credit: ...


@runtime_checkable
class TrainedReward(Reward, Protocol):
    """A reward that learns while it rewards: it owns its optimizer, and both are in the checkpoint."""

    @property
    def warmup_steps(self) -> int:
        """Rollout batches at the beginning from which it alone learns, not the policy."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def reads_states(reward: Reward) -> bool:
    """Whether the reward needs ``rollouts.pooled``, which an engine leaves out by default."""
    return bool(getattr(reward, "reads_states", False))


def refuse_learning(owner: str, *rewards: Reward) -> None:
    """A reward that learns must be the outermost: only there is it warmed up and in the checkpoint.

    Raises ValueError: naming the reward that learns.
    """
    for reward in rewards:
        if isinstance(reward, TrainedReward):
            inner = type(reward).__name__
            raise ValueError(f"{inner} learns, so {owner} cannot hold it: it must be the outermost reward")


def refuse_adding(owner: str, reward: Reward) -> None:
    """Refuse, inside a reward that replaces step values, a reward that adds its own to the outcome.

    Raises ValueError: naming the part that adds them.
    """
    for part, own in _parts_that_add(reward):
        inner = type(part).__name__
        raise ValueError(
            f"{inner} adds its values to the outcome: inside {owner} it needs weight 0 ({owner} takes {own} itself)"
        )


def _parts_that_add(reward: Any) -> Iterator[tuple[Any, float]]:
    """The parts of a reward that add values of steps to the outcome, and by which weight."""
    if own := getattr(reward, "weight", 0.0):
        yield reward, own
    for name, part in getattr(reward, "rewards", {}).items():
        if reward.weights[name]:
            yield from _parts_that_add(part)


STATUSES = ("timeout", "error")
"""Of a verdict on a reward's failure; its reason says what it failed with."""
FEWEST, MOST = 20, 1000
"""Verdicts that a share of errors is taken over: of fewer a single error is a large share; older ones are dropped."""
ALL = 4
"""Verdicts that suffice where all of them are errors."""


class RewardFailed(RuntimeError):
    """So many rollouts were not rewarded that the rest no longer represents the batch."""


class VerifierFailed(RewardFailed):
    """A verifier failed too often on this rank; the other ranks do not know of it."""


def checked_share(max_failures: float) -> float:
    """The same share of rollouts. Raises ValueError if it is none."""
    if not 0 <= max_failures <= 1:
        raise ValueError(f"max_failures must lie in [0, 1], got {max_failures}")
    return max_failures


def refuse_too_many(failures: Mapping[int, Verdict], rollouts: int, *, limit: float) -> None:
    """Refuse a batch of which more than the share ``limit`` has no reward; of several ranks all of theirs together.

    Raises RewardFailed: with the share, the limit and the first cause, on every rank.
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


class ErrorShare:
    """The share of errors among the last ``MOST`` verdicts of a verifier on this rank, and the limit on it.

    Not among those of one call: how many completions are judged together is arbitrary. The limit holds once there are
    ``FEWEST`` verdicts, or ``ALL`` and no other. ``of`` names what was judged, ``key`` what sets the limit.
    """

    def __init__(self, limit: float, *, of: str, key: str) -> None:
        self.limit = checked_share(limit)
        self.of = of
        self.key = key
        self._errors: deque[bool] = deque()
        self._failed = 0
        self._last = ""
        """The reason of the last error."""

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Count them.

        Raises VerifierFailed: with the share, the limit and the last cause, as soon as they are too many.
        """
        for verdict in verdicts:
            if len(self._errors) == MOST:
                self._failed -= self._errors.popleft()
            self._errors.append(not verdict.judged)
            self._failed += not verdict.judged
            self._last = self._last if verdict.judged else verdict.reason
            judged = len(self._errors)
            enough = judged >= FEWEST or self._failed == judged >= ALL
            if enough and self._failed > self.limit * judged:
                raise VerifierFailed(
                    f"the verifier failed on {self._failed} of the last {judged} {self.of}, more than "
                    f"{self.key}={self.limit:g} allows; the last time: {self._last}"
                )


class FailureWarning:
    """Warns of the first failure of each status of what ``key`` of the configuration names; all are counted."""

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
    """The mean of the others (0 where there are none) in place of each None, so that the logged mean is theirs."""
    given = [number for number in numbers if number is not None]
    mean = sum(given) / len(given) if given else 0.0
    return [mean if number is None else number for number in numbers]


def failure_metrics(failures: Mapping[int, Verdict], rollouts: int) -> dict[str, float]:
    """The share of rollouts without a reward, and that of each status; logged under ``train/``."""
    statuses = [verdict.status for verdict in failures.values()]
    shares = {f"reward/failed_{status}": statuses.count(status) / rollouts for status in STATUSES}
    return {"reward/failed": len(failures) / rollouts, **shares}
