"""Similarities s(a, c) of anchor and candidate embeddings: dot product, cosine, −‖a − c‖ and −‖a − c‖².

All take ``(…, A, D)`` and ``(…, C, D)`` and return ``(…, A, C)``. Larger means closer; none divides by a temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

Similarity = Callable[[Tensor, Tensor], Tensor]


def dot(anchors: Float[Tensor, "*batch A D"], candidates: Float[Tensor, "*batch C D"]) -> Float[Tensor, "*batch A C"]:
    """aᵀc: the critic of arXiv:2206.07568, f(s, a, g) = φ(s, a)ᵀψ(g)."""
    return anchors @ candidates.mT


def cosine(
    anchors: Float[Tensor, "*batch A D"], candidates: Float[Tensor, "*batch C D"]
) -> Float[Tensor, "*batch A C"]:
    """aᵀc / (‖a‖ ‖c‖); a zero vector has similarity 0 with everything, and a finite gradient."""
    return dot(_normalise(anchors), _normalise(candidates))


def neg_l2(
    anchors: Float[Tensor, "*batch A D"], candidates: Float[Tensor, "*batch C D"]
) -> Float[Tensor, "*batch A C"]:
    """−‖a − c‖; the gradient at distance 0 is 0."""
    # The matrix-product form of cdist loses half of the digits at small distances.
    return -torch.cdist(anchors, candidates, compute_mode="donot_use_mm_for_euclid_dist")


def neg_l2_squared(
    anchors: Float[Tensor, "*batch A D"], candidates: Float[Tensor, "*batch C D"]
) -> Float[Tensor, "*batch A C"]:
    """−‖a − c‖² = 2aᵀc − ‖a‖² − ‖c‖²; rounding may make it slightly positive, but its gradient is exact."""
    squares = anchors.square().sum(-1)[..., :, None] + candidates.square().sum(-1)[..., None, :]
    return 2 * dot(anchors, candidates) - squares


def neg_unit_l2(
    anchors: Float[Tensor, "*batch A D"], candidates: Float[Tensor, "*batch C D"], *, epsilon: float
) -> Float[Tensor, "*batch A C"]:
    """−‖a − c‖ = −√max(2 − 2aᵀc, ε) of unit vectors; the gradient of two equal vectors is 0."""
    return -(2 - 2 * dot(anchors, candidates)).clamp(min=epsilon).sqrt()


def of_pairs(
    similarity: Similarity, anchors: Float[Tensor, "N D"], candidates: Float[Tensor, "N D"]
) -> Float[Tensor, " N"]:
    """s(aₙ, cₙ): each anchor with its own candidate only, in O(N)."""
    return similarity(anchors[:, None, :], candidates[:, None, :])[:, 0, 0]


def _normalise(vectors: Float[Tensor, "*batch N D"]) -> Float[Tensor, "*batch N D"]:
    squared = vectors.square().sum(-1, keepdim=True)
    # replaced before rsqrt: its gradient at 0 is infinite, and times 0 it would be NaN
    return vectors * squared.where(squared > 0, 1.0).rsqrt()


similarities: Mapping[str, Similarity] = {
    "dot": dot,
    "cosine": cosine,
    "neg_l2": neg_l2,
    "neg_l2_squared": neg_l2_squared,
}
