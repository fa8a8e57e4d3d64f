"""Analysis of embeddings: projections, spread and parity. Pure functions that do not affect training.

Projections are PCA, which approximates distances, and t-SNE, which keeps neighbours. Measures of spread are alignment
and uniformity (arXiv:2005.10242) and the effective rank (Roy and Vetterli 2007).
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize, pdist


class Projection(NamedTuple):
    """Points on their first K principal components."""

    points: Float[Tensor, "N K"]
    explained: Float[Tensor, " K"]
    """Share of the total variance on each component."""


def pca(embeddings: Float[Tensor, "N D"], *, components: int) -> Projection:
    """Returns coordinates on the first principal components, signed so that each one's largest entry is positive.

    Args:
        embeddings: N points.
        components: K ≤ min(N, D).

    Raises ValueError if the points do not have that many components.
    """
    points, dimension = embeddings.shape
    if not 1 <= components <= min(points, dimension):
        raise ValueError(f"{points} points in {dimension} dimensions have no {components} principal components")
    centred = embeddings.double() - embeddings.double().mean(dim=0)
    _, scale, axes = torch.linalg.svd(centred, full_matrices=False)
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    variance = scale.square()
    explained = variance / variance.sum().clamp(min=torch.finfo(variance.dtype).tiny)
    return Projection(
        (centred @ (axes * largest.sign())[:components].T).to(embeddings.dtype),
        explained[:components].to(embeddings.dtype),
    )


def tsne(embeddings: Float[Tensor, "N D"], *, perplexity: float, seed: int) -> Float[Tensor, "N 2"]:
    """Returns t-SNE coordinates from a PCA start (van der Maaten and Hinton, 2008), a function of its arguments alone.

    Args:
        embeddings: N ≥ 4 points.
        perplexity: roughly the number of neighbours that count; at most (N − 1)/3.
        seed: of scikit-learn's own generator.

    Raises ValueError if there are fewer than four points.
    """
    from sklearn.manifold import TSNE  # takes a second to import

    points = len(embeddings)
    if points < 4:
        raise ValueError(f"t-SNE needs at least 4 points, got {points}")
    model = TSNE(perplexity=min(perplexity, (points - 1) / 3), init="pca", random_state=seed % 2**32)
    return torch.from_numpy(model.fit_transform(embeddings.double().numpy())).to(embeddings.dtype)


def parity_of(numbers: Int[Tensor, "N ..."]) -> Bool[Tensor, " N"]:
    """Returns whether the sum of each row's numbers is odd; entries of −1 are padding."""
    rows = numbers.reshape(len(numbers), -1)
    return rows.clamp(min=0).sum(dim=1) % 2 == 1


def parity_accuracy(
    embeddings: Float[Tensor, "N D"], parity: Bool[Tensor, " N"], *, components: int, folds: int
) -> float:
    """Returns the balanced, cross-validated accuracy of logistic regression on the first components; 0.5 is chance.

    Sums keep their parity under + and −, so a critic can distinguish trajectories by parity alone. The goal space of
    the published V1 split along this shortcut.

    Args:
        embeddings: N points.
        parity: the parity of each point.
        components: K; fewer if the points have fewer components.
        folds: of the cross-validation, unshuffled; fewer if a class has fewer members.

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


def alignment(anchors: Float[Tensor, "N D"], positives: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Returns the mean squared distance of positive pairs on the unit sphere: 0 if they coincide, 2 if unrelated."""
    return (normalize(anchors, dim=1) - normalize(positives, dim=1)).square().sum(dim=1).mean()


def uniformity(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Returns log mean exp(−2‖x − y‖²) over pairs on the unit sphere: 0 if all coincide, about −4 if spread evenly.

    Raises ValueError on fewer than two points.
    """
    if len(embeddings) < 2:
        raise ValueError(f"uniformity needs at least two points, got {len(embeddings)}")
    exponents = -2 * pdist(normalize(embeddings, dim=1)).square()
    return exponents.logsumexp(dim=0) - log(len(exponents))


def effective_rank(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Returns exp of the entropy of the centred points' normalised singular values: the directions in use, ≥ 1."""
    values = torch.linalg.svdvals(embeddings - embeddings.mean(dim=0))
    share = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
    return torch.special.entr(share).sum().exp()


def distinct_rows(values: Tensor) -> list[int]:
    """Returns the first row of each different value, in the order of the rows; ``values`` are (N, …)."""
    first: dict[tuple[float, ...], int] = {}
    for row, numbers in enumerate(values.reshape(len(values), -1).tolist()):
        first.setdefault(tuple(numbers), row)
    return list(first.values())
