"""What a reward says of a rollout batch: a number per rollout, its parts by name, and values of single steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

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
    """How many numbers are left after it, or its index where a task's states are no sequences; equals are compared."""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """The reward of each rollout, every source by its own name."""

    outcome: Float[Tensor, " B"]
    """The reward of the whole rollout: what the group compares."""
    parts: Mapping[str, Float[Tensor, " B"]]
    """Each source's own, unweighted number per rollout; logged as ``train/reward/<part>``."""
    steps: Sequence[Sequence[StepCredit]] | None = None
    """Per rollout its steps in order of writing; None where the reward knows no steps. Illegal steps are absent."""
    verdicts: Sequence[Verdict] | None = None
    """The verifier's decision on each rollout, counted by status; None where nothing was verified."""


@runtime_checkable
class Reward(Protocol):
    def __call__(self, rollouts: RolloutBatch) -> Credit: ...
