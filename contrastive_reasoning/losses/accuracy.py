"""Categorical accuracy: is the positive the candidate with the largest score?"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def categorical_accuracy(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Bool[Tensor, " A"]:
    """Per anchor, whether the best-scored column is a positive; False for an anchor that has none.

    Args:
        logits: scores of A anchors with C candidates, at any temperature.
        positive: the positives of each anchor.
        candidate: the columns that compete besides the positives; None for all. The first of equals wins.
    """
    counts = positive | candidate if candidate is not None else positive | True
    best = logits.masked_fill(~counts, float("-inf")).argmax(dim=1, keepdim=True)
    return positive.gather(1, best).squeeze(1)
