"""What a reward says of a rollout batch: a number per rollout, its parts by name, and values of single steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Verdict


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
    """The token by which the step is known to have ended, its separator's say; beyond the completion where only its end
    tells. None: ``last_token``."""
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
    """Per rollout the value of the state before its first step; None where the reward cannot tell."""
    verdicts: Sequence[Verdict] | None = None
    """The verifier's decision on each rollout, counted by status; None where nothing was verified."""
    failures: Mapping[int, Verdict] = field(default_factory=dict)
    """Row → why the reward failed on it: timeout or error, and the reason. What stands in ``outcome`` there is no
    evidence: the row is left out of its group and has an advantage of exactly 0."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What else a source has to say of the batch, as ``room/quantity``; logged under ``train/``."""


@runtime_checkable
class Reward(Protocol):
    def __call__(self, rollouts: RolloutBatch) -> Credit: ...


@runtime_checkable
class TrainedReward(Reward, Protocol):
    """A reward that learns while it rewards: it owns its optimizer, and both are in the checkpoint."""

    @property
    def warmup_steps(self) -> int:
        """Rollout batches at the beginning from which it learns alone; the policy waits."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def reads_states(reward: Reward) -> bool:
    """Whether the reward needs ``rollouts.pooled``, which an engine leaves out unless it is asked."""
    return bool(getattr(reward, "reads_states", False))


def refuse_learning(owner: str, *rewards: Reward) -> None:
    """A reward that learns must be the outermost: only there is it warmed up and in the checkpoint.

    Raises:
        ValueError: naming the reward that learns.
    """
    for reward in rewards:
        if isinstance(reward, TrainedReward):
            inner = type(reward).__name__
            raise ValueError(f"{inner} learns, so {owner} cannot hold it: it must be the outermost reward")


def refuse_adding(owner: str, reward: Reward) -> None:
    """A reward that makes something else of a reward's step values: those must not be in the outcome already.

    Raises:
        ValueError: naming the part that adds them.
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
