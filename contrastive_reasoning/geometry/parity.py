"""How well parity is readable from an embedding's first principal components.

Sums keep their parity under + and −, so a critic can tell trajectories apart by parity alone: the shortcut on which the
goal space of the published V1 split.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.geometry.projection import pca


def parity_of(numbers: Int[Tensor, "N ..."]) -> Bool[Tensor, " N"]:
    """Whether the sum of a row's numbers is odd; entries of −1 are padding."""
    rows = numbers.reshape(len(numbers), -1)
    return rows.clamp(min=0).sum(dim=1) % 2 == 1


def parity_accuracy(
    embeddings: Float[Tensor, "N D"], parity: Bool[Tensor, " N"], *, components: int, folds: int
) -> float:
    """Balanced, cross-validated accuracy of logistic regression on the first components: 0.5 is chance, 1 is readable.

    Args:
        embeddings: N points.
        parity: of each.
        components: K; fewer where there are not as many.
        folds: of the cross-validation, unshuffled; fewer where a class is smaller.

    Returns:
        NaN if a class has fewer than two members.
    """
    from sklearn.linear_model import LogisticRegression  # takes a second to import
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    labels = parity.numpy()
    smaller = int(min(labels.sum(), (~labels).sum()))
    if smaller < 2:
        return float("nan")
    projected = pca(embeddings, components=min(components, *embeddings.shape)).points.double().numpy()
    spread = projected.std(axis=0)
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    split = StratifiedKFold(n_splits=min(folds, smaller))
    scaled = projected / np.where(spread > 0, spread, 1.0)
    return float(cross_val_score(model, scaled, labels, cv=split, scoring="balanced_accuracy").mean())
