"""What a critic is: f(s, a, g), for all pairs of a batch or for given pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.tasks.base import Problem, Step


@dataclass(kw_only=True)
class CriticBatch:
    """A anchors (state–action pairs), C goals, and which of the A×C pairs are what.

    Not frozen: Lightning moves the tensors of a dataclass to the device by replacing its fields.
    """

    state_actions: Any
    """A state–action pairs in the critic's own encoding (a tensor or a dict of tensors, first axis A)."""
    goals: Any
    """C goals in the critic's own encoding (first axis C)."""
    positive: Bool[Tensor, "A C"]
    """The goal was reached from the anchor."""
    candidate: Bool[Tensor, "A C"]
    """The pair counts at all: positives and true negatives. Same-goal and known-reachable pairs are False."""


@dataclass(kw_only=True)
class CriticOracleBatch:
    """N states of held-out problems, each with its problem's goal and the exact oracle's answer."""

    state_actions: Any
    """N state–action pairs in the critic's own encoding."""
    goals: Any
    """N goals, row for row."""
    label: Bool[Tensor, " N"]
    """True where the goal is reachable from the state."""
    depth: Int[Tensor, " N"]
    """Moves from the problem's start to the state."""
    problem: Int[Tensor, " N"]
    """Index of the problem; states of the same problem and depth are siblings."""


@runtime_checkable
class Critic(Protocol):
    """Called like a torch module; every critic is one."""

    def forward(self, state_actions: Any, goals: Any) -> Float[Tensor, "A C"]:
        """f for every anchor with every goal."""
        ...

    def pairs(self, state_actions: Any, goals: Any) -> Float[Tensor, " N"]:
        """f for N anchors, each with its own goal (A = C = N)."""
        ...

    def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Any, Any]:
        """What ``pairs`` takes: (state_actions, goals) of N steps of one completion, each with the problem's goal."""
        ...


def values_states(critic: object) -> bool:
    """Whether f(s, a, g) depends on the numbers that a step leaves and the goal alone, not on how they were come by.

    Such a critic also values the state before any step, and a state that many completions reach is asked about once.
    """
    return bool(getattr(critic, "values_states", False))


@runtime_checkable
class DotProductCritic(Critic, Protocol):
    """f = similarity(φ(s, a), ψ(g)): the two embeddings can be looked at."""

    def encode_state_action(self, state_actions: Any) -> Float[Tensor, "A D"]: ...

    def encode_goal(self, goals: Any) -> Float[Tensor, "C D"]: ...
