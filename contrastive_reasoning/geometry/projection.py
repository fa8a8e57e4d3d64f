"""Embeddings in two dimensions: PCA, which keeps distances as far as it can, and t-SNE, which keeps neighbours."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Projection(NamedTuple):
    """Points on their first K principal components."""

    points: Float[Tensor, "N K"]
    explained: Float[Tensor, " K"]
    """Share of the total variance on each component."""


def pca(embeddings: Float[Tensor, "N D"], *, components: int) -> Projection:
    """Coordinates on the first principal components; each component points where its largest entry is positive.

    Args:
        embeddings: N points.
        components: K ≤ min(N, D).

    Raises:
        ValueError: if there are not that many components.
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
    """t-SNE from a PCA start (van der Maaten and Hinton, 2008): a function of its arguments alone.

    Args:
        embeddings: N ≥ 4 points.
        perplexity: about how many neighbours count; lowered to (N − 1)/3 where there are few points.
        seed: of scikit-learn's own generator.

    Raises:
        ValueError: if there are fewer than four points.
    """
    from sklearn.manifold import TSNE  # takes a second to import

    points = len(embeddings)
    if points < 4:
        raise ValueError(f"t-SNE needs at least 4 points, got {points}")
    model = TSNE(perplexity=min(perplexity, (points - 1) / 3), init="pca", random_state=seed)
    return torch.from_numpy(model.fit_transform(embeddings.double().numpy())).to(embeddings.dtype)
