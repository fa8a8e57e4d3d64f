"""Pair selection: which (anchor, candidate) pairs are positive, which count at all, and which are drawn.

``different_from_own`` for anchors with own goals 7, 7, 9 against the goals 7, 7, 9 (x: counts as a negative):

            g=7  g=7  g=9
    a (7)    .    .    x
    a (7)    .    .    x
    a (9)    x    x    .
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def same_label(anchors: Int[Tensor, " A"], candidates: Int[Tensor, " C"]) -> Bool[Tensor, "A C"]:
    """True where anchor and candidate carry the same label."""
    return anchors[:, None] == candidates[None, :]


def different_trajectory(anchors: Int[Tensor, " A"], goals: Int[Tensor, " C"]) -> Bool[Tensor, "A C"]:
    """True where anchor and goal come from different trajectories, the only pairs that may be in-batch negatives."""
    return ~same_label(anchors, goals)


def different_from_own(own: Int[Tensor, "A K"], goals: Int[Tensor, "C K"]) -> Bool[Tensor, "A C"]:
    """True where a goal differs from the anchor's own goal: same-goal pairs are no negatives, they are reached.

    Args:
        own: the K numbers of each anchor's own goal.
        goals: the K numbers of each goal.
    """
    return (own[:, None, :] != goals[None, :, :]).any(dim=-1)


def candidates_of(positive: Bool[Tensor, "A C"], *negative: Bool[Tensor, "A C"]) -> Bool[Tensor, "A C"]:
    """The pairs that count: all positives, and what every one of the ``negative`` masks allows."""
    allowed = torch.ones_like(positive)
    for mask in negative:
        allowed = allowed & mask
    return positive | allowed


def without_self(count: int, *, device: torch.device) -> Bool[Tensor, "A A"]:
    """All pairs of ``count`` rows but each row with itself."""
    return ~torch.eye(count, dtype=torch.bool, device=device)


def draw_negatives(
    positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"], *, count: int, generator: torch.Generator
) -> Bool[Tensor, "A C"]:
    """All positives and, per anchor, ``count`` of its negatives drawn without replacement (all, where there are fewer).

    Args:
        positive: positive pairs, always kept.
        candidate: pairs that count; a negative is a candidate that is not positive.
        count: negatives per anchor.
        generator: a CPU generator; the same state gives the same pairs on every device.
    """
    negative = candidate & ~positive
    keys = torch.rand(positive.shape, generator=generator).to(positive.device).masked_fill(~negative, 2.0)
    order = keys.argsort(dim=1)[:, :count]
    drawn = torch.zeros_like(positive).scatter(1, order, torch.ones_like(order, dtype=torch.bool))
    return positive | (drawn & negative)
