"""Which of an anchor's negatives count, where not all of them are to."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor


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
