"""What is worth watching of a contrastive space of completions, as plain numbers."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.geometry.spread import effective_rank, uniformity
from contrastive_reasoning.losses.completions import Compared

SPREAD_ROWS = 256
"""Completions, evenly taken from the batch, whose spread is measured: its cost grows with their square."""


@torch.no_grad()
def contrast_metrics(
    embeddings: Float[Tensor, "B D"],
    compared: Compared,
    anchors: Bool[Tensor, " B"],
    losses: Float[Tensor, " B"],
    group_size: int,
) -> dict[str, float]:
    """Metrics of one rollout batch under ``clipo/``; those of pairs are left out where no anchor is valid.

    Of embeddings that are not finite nothing is said but how many groups were valid.

    The mutual-information bound is log G − L as the paper writes it (its Eq. 4), for InfoNCE with the anchor in its own
    sum. Where it is left out, as by default, the bound proper is log(G − 1) − L; for other losses it is a yardstick.

    Args:
        embeddings: unit vectors, prompt-major.
        compared: scores and positives.
        anchors: the valid ones.
        losses: ℓ per anchor; 0 for the others.
        group_size: G.
    """
    metrics = {"clipo/valid_groups": anchors.view(-1, group_size).any(dim=1).double().mean().item()}
    if not bool(embeddings.isfinite().all()):
        return metrics  # they have no singular values, and torch raises
    sample = embeddings[:: max(1, len(embeddings) // SPREAD_ROWS)]
    if len(sample) > 1:
        metrics["clipo/effective_rank"] = effective_rank(sample).item()
        metrics["clipo/uniformity"] = uniformity(sample).item()
    if not bool(anchors.any()):
        return metrics
    loss = losses[anchors].mean().item()
    positive = compared.positive & anchors[:, None]
    negative = compared.candidate & ~compared.positive & ~compared.itself & anchors[:, None]
    cosines = _cosines(embeddings, compared, group_size)
    positive_cosine = cosines[positive].mean().item()
    return metrics | {
        "clipo/loss": loss,
        "clipo/mutual_information_bound": math.log(compared.scores.shape[1]) - loss,
        "clipo/positive_cosine": positive_cosine,
        "clipo/negative_cosine": cosines[negative].mean().item(),
        "clipo/alignment": 2 - 2 * positive_cosine,  # of unit vectors: the mean squared distance of positives
    }


def _cosines(embeddings: Tensor, compared: Compared, group_size: int) -> Float[Tensor, "B C"]:
    if compared.scores.shape[1] == group_size:
        groups = embeddings.unflatten(0, (-1, group_size))
        return (groups @ groups.mT).flatten(0, 1)
    return embeddings @ embeddings.T
