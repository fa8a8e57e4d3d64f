"""Masked operations on (A, C) scores: sums, means, accuracy and draws over the (anchor, candidate) pairs that count."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_logsumexp(
    logits: Float[Tensor, "A C"], mask: Bool[Tensor, "A C"], floor: Float[Tensor, " A"] | None = None
) -> Float[Tensor, " A"]:
    """Returns the logsumexp over the selected columns of each row, with a floor log(Σ exp(sᵢⱼ) + exp(floorᵢ)).

    It is 0, with zero gradient, for a row whose mask is empty.
    """
    occupied = mask.any(dim=1)
    # The gradient of a row of only −inf is NaN, so an empty row is made finite before the sum and zeroed after it.
    filled = logits.masked_fill(~mask, float("-inf")).masked_fill(~occupied[:, None], 0.0)
    total = filled.logsumexp(dim=1)
    return (total if floor is None else torch.logaddexp(total, floor)).where(occupied, 0.0)


def masked_mean(logits: Float[Tensor, "A C"], mask: Bool[Tensor, "A C"]) -> Float[Tensor, " A"]:
    """Returns the mean over the selected columns of each row; 0 for a row whose mask is empty."""
    return logits.where(mask, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def mean_over(values: Float[Tensor, "*shape"], selected: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Returns the mean of ``values`` where ``selected``; a zero that still backpropagates if nothing is selected.

    Entries that are not selected are ignored, including infinities and NaN.
    """
    return values.where(selected, 0.0).sum() / selected.sum().clamp(min=1)


def categorical_accuracy(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Bool[Tensor, " A"]:
    """Returns for each anchor whether the column with the highest score is a positive; False without positives.

    ``candidate`` are the columns that compete besides the positives; None for all. Ties go to the first column.
    """
    counts = positive | candidate if candidate is not None else positive | True
    best = logits.masked_fill(~counts, float("-inf")).argmax(dim=1, keepdim=True)
    return positive.gather(1, best).squeeze(1)


def draw_negatives(
    positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"], *, count: int, generator: torch.Generator
) -> Bool[Tensor, "A C"]:
    """Returns all positives and, for each anchor, ``count`` negatives drawn without replacement (all if fewer).

    A negative is a candidate that is not positive. The generator is a CPU generator: the same draws on every device.
    """
    negative = candidate & ~positive
    keys = torch.rand(positive.shape, generator=generator).to(positive.device).masked_fill(~negative, 2.0)
    order = keys.argsort(dim=1)[:, :count]
    drawn = torch.zeros_like(positive).scatter(1, order, torch.ones_like(order, dtype=torch.bool))
    return positive | (drawn & negative)  # with fewer negatives than count, other columns were drawn too
