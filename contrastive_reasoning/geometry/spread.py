"""Measures of spread: alignment and uniformity (arXiv:2005.10242), effective rank (Roy and Vetterli 2007)."""

from __future__ import annotations

from math import log

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, pdist


def alignment(anchors: Float[Tensor, "N D"], positives: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Returns the mean squared distance of positive pairs on the unit sphere: 0 if they coincide, 2 if unrelated."""
    return (normalize(anchors, dim=1) - normalize(positives, dim=1)).square().sum(dim=1).mean()


def uniformity(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Returns log mean exp(−2‖x − y‖²) over pairs on the unit sphere: 0 if all coincide, about −4 if spread evenly.

    Raises:
        ValueError: on fewer than two points.
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
