"""Binary NCE, as maximised on the poster:  ℓ⁺ = −log σ(s/τ) on positive pairs, ℓ⁻ = −log(1 − σ(s/τ)) on negative ones.

The logit estimates log p(g | s, a) / p(g) up to the share of positives among the pairs, without a free constant per
state. The balanced form is the mean over the positive pairs plus the mean over the negative pairs, regardless of their
numbers. The poster has one negative per positive; the balanced form keeps this balance with all pairs of a batch.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from contrastive_reasoning.losses.base import LossAtTemperature
from contrastive_reasoning.losses.masked import mean_over


def binary_nce(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, "A C"]:
    """Returns one loss per pair.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: any number of positive pairs.
        candidate: the pairs that count besides the positives; None for all. Those that are not positive are negatives.

    Returns:
        ℓ per pair; 0, with zero gradient, for pairs that do not count.
    """
    counts = positive | candidate if candidate is not None else positive | True
    # not softplus: torch's is linear beyond 20 and loses the gradient's last digits there
    return -logsigmoid(logits.where(positive, -logits)).where(counts, 0.0)


def binary_nce_balanced(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, ""]:
    """Returns the mean of ℓ⁺ plus the mean of ℓ⁻; a side without pairs adds 0.

    The result is reduced, because the balance lies in the reduction. The arguments are those of ``binary_nce``.
    """
    losses = binary_nce(logits, positive, candidate)
    negative = ~positive if candidate is None else candidate & ~positive
    return mean_over(losses, positive) + mean_over(losses, negative)


class BinaryNCE(LossAtTemperature):
    """Plain mean of ``binary_nce`` over all pairs that count."""

    @staticmethod
    def reduce(logits: Tensor, positive: Tensor, candidate: Tensor) -> Tensor:
        return mean_over(binary_nce(logits, positive, candidate), positive | candidate)


class BalancedBinaryNCE(LossAtTemperature):
    """``binary_nce_balanced`` at a temperature."""

    reduce = staticmethod(binary_nce_balanced)
