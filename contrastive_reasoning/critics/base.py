"""The interface of critics f(s, a, g), for all pairs of a batch or for given pairs, and their training batches.

Each critic defines its encodings: a tensor, or a dict of tensors, with one row per state–action or goal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from contrastive_reasoning.losses.similarity import Similarity, of_pairs
from contrastive_reasoning.tasks.base import Problem, Step

NONE = -1
"""The hindsight goal of an anchor that reached no possible goal."""


@dataclass(kw_only=True)
class CriticBatch:
    """A anchors (state–action pairs), C goals, and the masks of the A×C pairs.

    Not frozen: Lightning moves the tensors of a dataclass to the device by replacing its fields.
    """

    state_actions: Any
    """A state–action pairs in the critic's own encoding (a tensor or a dict of tensors, first axis A)."""
    goals: Any
    """C goals in the critic's own encoding (first axis C)."""
    positive: Bool[Tensor, "A C"]
    """The goal was reached from the anchor."""
    candidate: Bool[Tensor, "A C"]
    """The pair counts: positives and true negatives. Same-goal and known-reachable pairs are False."""


@dataclass(kw_only=True)
class CriticOracleBatch:
    """N states of held-out problems, each with its problem's goal and what exact enumeration knows about the pair."""

    state_actions: Any
    goals: Any
    label: Bool[Tensor, " N"]
    """True where the goal is reachable from the state."""
    chance: Float[Tensor, " N"]
    """p(g | s), the probability that random play from the state ends on the goal, which a critic of plays estimates."""
    depth: Int[Tensor, " N"]
    """Moves from the problem's start to the state."""
    problem: Int[Tensor, " N"]
    """Index of the problem; states of the same problem and depth are siblings."""


@runtime_checkable
class Critic(Protocol):
    """Called like a torch module; every critic is one."""

    def forward(self, state_actions: Any, goals: Any) -> Float[Tensor, "A C"]:
        """Returns f for every anchor with every goal."""
        ...

    def pairs(self, state_actions: Any, goals: Any) -> Float[Tensor, " N"]:
        """Returns f for N anchors, each with its own goal (A = C = N)."""
        ...

    def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Any, Any]:
        """Returns (state_actions, goals) of N steps of a completion for ``pairs``, each with the problem's goal."""
        ...


def values_states(critic: object) -> bool:
    """Returns whether f(s, a, g) depends only on the goal and the numbers that a step leaves, not on earlier steps.

    Such a critic also values the state before any step, and a state that many completions reach is scored once.
    """
    return bool(getattr(critic, "values_states", False))


def is_ensemble(critic: object) -> bool:
    """Returns whether a critic, or a class of critics, has members that learn each by its own loss."""
    return bool(getattr(critic, "is_ensemble", False))


def members_of(critic: Any) -> list[Any]:
    """Returns the critics that learn, each by its own loss: an ensemble's members, or the critic itself."""
    return list(getattr(critic, "members", [critic]))


def numbers_and_target(problem: Problem) -> tuple[Sequence[int], int]:
    """Returns the numbers and the target of a Countdown problem, which numeric critics read.

    Raises ValueError for a problem of another task, without numbers or target.
    """
    missing = [name for name in ("numbers", "target") if name not in problem.fields]
    if missing:
        raise ValueError(f"numeric critics read Countdown problems; problem {problem.id!r} has no {missing[0]}")
    return problem.fields["numbers"], problem.fields["target"]


@runtime_checkable
class TraceCritic(Critic, Protocol):
    """A critic that reads lines of a written search."""

    def encode_actions(self, states: Sequence[str], actions: Sequence[str]) -> Any:
        """Encodes N lines, each with the lines before it, as the ``state_actions`` of N triples."""
        ...

    def encode_goals(self, goals: Sequence[str]) -> Any:
        """Encodes N lines as goals."""
        ...


class TwoTowerCritic(nn.Module, ABC):
    """f(s, a, g) = similarity(φ(s, a), ψ(g)), for all pairs or for given pairs; subclasses define the two encoders."""

    def __init__(self, *, similarity: Similarity) -> None:
        super().__init__()
        self.similarity = similarity

    @abstractmethod
    def encode_state_action(self, state_actions: Any) -> Float[Tensor, "A D"]: ...

    @abstractmethod
    def encode_goal(self, goals: Any) -> Float[Tensor, "C D"]: ...

    def forward(self, state_actions: Any, goals: Any) -> Float[Tensor, "A C"]:
        return self.similarity(self.encode_state_action(state_actions), self.encode_goal(goals))

    def pairs(self, state_actions: Any, goals: Any) -> Float[Tensor, " N"]:
        return of_pairs(self.similarity, self.encode_state_action(state_actions), self.encode_goal(goals))


def take(encoding: Any, rows: Int[Tensor, " N"]) -> Any:
    """Returns the given rows of an encoding, in that order, repeats allowed."""
    return tree_map(lambda part: part[rows], encoding)


def rows_of(encoding: Any) -> int:
    """Returns the number of rows of an encoding."""
    return tree_leaves(encoding)[0].shape[0]


class Pairs(NamedTuple):
    """C goals and the masks of the A × C pairs: the fields of ``CriticBatch`` as arrays."""

    goals: Int[ndarray, " C"]
    positive: Bool[ndarray, "A C"]
    candidate: Bool[ndarray, "A C"]


@runtime_checkable
class Pairing(Protocol):
    """Chooses the goals for a batch of anchors and labels the pairs; for example ``EveryGoal`` or ``OwnGoal``."""

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        """Returns the goals and masks. The arguments are for each anchor a value reached from it (or ``NONE``), its
        problem's target, the values known to be reachable from it, and whether all others are unreachable."""
        ...
