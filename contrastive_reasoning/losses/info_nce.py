"""InfoNCE, Eq. (4) of arXiv:1807.03748, in both directions over the pairs of a batch:

        forward     ℓᵢ = log Σⱼ exp(sᵢⱼ/τ) − sᵢₚ/τ     each anchor's softmax over the goals
        backward    ℓⱼ = log Σᵢ exp(sᵢⱼ/τ) − sₚⱼ/τ     each goal's softmax over the state–actions
        symmetric   the mean of the two, over all positive pairs (i, p), each against the negatives alone

The forward form leaves a free constant per anchor, so the scores of two states for one goal are not comparable in
principle. In the backward form states compete for one goal, as they do when a reward uses a critic. A state that
reaches nothing (a dead end) is a negative in the goal columns in which it is a candidate.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from contrastive_reasoning.losses.base import LossAtTemperature, PerAnchorLoss
from contrastive_reasoning.losses.masked import masked_logsumexp, mean_over
from contrastive_reasoning.losses.supcon import supcon


def info_nce(
    logits: Float[Tensor, "A C"],
    positive: Bool[Tensor, "A C"],
    candidate: Bool[Tensor, "A C"] | None = None,
    floor: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, " A"]:
    """Returns one loss per anchor: ``supcon`` with one positive per row.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: one True per row, or none; with several the loss is the mean over them.
        candidate: the columns of the softmax besides the positive; None for all columns.
        floor: an additional logit in the sum of exponentials; None for an exact sum.

    Returns:
        ℓ per anchor; exactly 0, with zero gradient, for an anchor that has no positive.
    """
    return supcon(logits, positive, candidate, floor)


def info_nce_backward(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, " C"]:
    """Returns one loss per goal: ``info_nce`` of the transposed pairs; exactly 0 for a goal that no anchor reached."""
    return info_nce(logits.T, positive.T, None if candidate is None else candidate.T)


def info_nce_pairs(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, "A C"]:
    """Returns one forward loss per positive pair:  ℓᵢₚ = log( exp sᵢₚ + Σ_{n negative} exp sᵢₙ ) − sᵢₚ.

    The other positives of an anchor are not in the sum, so each of several draws from an anchor has the loss that it
    would have alone. With one positive per anchor it is ``info_nce``. The arguments are those of ``info_nce``.

    Returns:
        ℓ per pair; 0, with zero gradient, for a pair that is not positive, and for an anchor without negatives.
    """
    negative = ~positive if candidate is None else candidate & ~positive
    against = masked_logsumexp(logits, negative)[:, None]
    # not softplus: see binary_nce
    return -logsigmoid(logits - against).where(positive & negative.any(dim=1, keepdim=True), 0.0)


def info_nce_symmetric(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, ""]:
    """Returns the mean over the positive pairs of half the forward plus half the backward loss of ``info_nce_pairs``.

    The arguments are those of ``info_nce``.
    """
    backward = info_nce_pairs(logits.T, positive.T, None if candidate is None else candidate.T).T
    return mean_over((info_nce_pairs(logits, positive, candidate) + backward) / 2, positive)


class InfoNCE(PerAnchorLoss):
    """Mean of ``info_nce`` over the anchors that have a positive."""

    formula = staticmethod(info_nce)


class BackwardInfoNCE(LossAtTemperature):
    """Mean of ``info_nce_backward`` over the goals that have a positive."""

    @staticmethod
    def reduce(logits: Tensor, positive: Tensor, candidate: Tensor) -> Tensor:
        return mean_over(info_nce_backward(logits, positive, candidate), positive.any(dim=0))


class SymmetricInfoNCE(LossAtTemperature):
    """``info_nce_symmetric`` at a temperature."""

    reduce = staticmethod(info_nce_symmetric)
