"""What a pairing is: which goals a batch of anchors is asked about, and what the pairs of anchor and goal are."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Int
from numpy import ndarray

NONE = -1
"""Stands for the hindsight goal of an anchor that reached no goal worth asking about."""


class Pairs(NamedTuple):
    """C goals, and what the A × C pairs are: the fields of ``CriticBatch`` as arrays."""

    goals: Int[ndarray, " C"]
    positive: Bool[ndarray, "A C"]
    candidate: Bool[ndarray, "A C"]


@runtime_checkable
class Pairing(Protocol):
    """``datamodules.pairing`` has some."""

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        """
        Args:
            hindsight: a value reached from each anchor, or ``NONE``.
            targets: the target of each trajectory's own problem.
            reached: the values known to be reachable from each anchor.
            exhausted: whether all values that it does not list are dead ends.
        """
        ...
