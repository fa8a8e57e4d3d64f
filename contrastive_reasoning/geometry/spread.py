"""How embeddings fill their space: alignment, uniformity (arXiv:2005.10242), effective rank (Roy, Vetterli 2007)."""

from __future__ import annotations

from math import log

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, pdist


def alignment(anchors: Float[Tensor, "N D"], positives: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """Mean squared distance of positive pairs on the unit sphere: 0 when they coincide, 2 when they are unrelated."""
    return (normalize(anchors, dim=1) - normalize(positives, dim=1)).square().sum(dim=1).mean()


def uniformity(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """log mean exp(−2‖x − y‖²) over pairs on the unit sphere: 0 when all coincide, about −4 when spread evenly.

    Raises:
        ValueError: on fewer than two points.
    """
    if len(embeddings) < 2:
        raise ValueError(f"uniformity needs at least two points, got {len(embeddings)}")
    exponents = -2 * pdist(normalize(embeddings, dim=1)).square()
    return exponents.logsumexp(dim=0) - log(len(exponents))


def effective_rank(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, ""]:
    """exp of the entropy of the centred points' normalised singular values: how many directions are in use, ≥ 1."""
    values = torch.linalg.svdvals(embeddings - embeddings.mean(dim=0))
    share = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
    return torch.special.entr(share).sum().exp()
