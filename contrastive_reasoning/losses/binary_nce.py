"""Binary NCE, as maximised on the poster:  ℓ⁺ = −log σ(s/τ) on positive pairs, ℓ⁻ = −log(1 − σ(s/τ)) on negative ones.

The logit estimates log p(g | s, a) / p(g) up to the share of positives among the pairs: no free constant per state.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from contrastive_reasoning.losses.base import require_positive
from contrastive_reasoning.losses.reduce import mean_over


def binary_nce(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, "A C"]:
    """One loss per pair.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: any number of positive pairs.
        candidate: the pairs that count besides the positives; None for all. The others are negatives.

    Returns:
        ℓ per pair; 0, with zero gradient, for pairs that do not count.
    """
    counts = positive | candidate if candidate is not None else positive | True
    # softplus would do, but torch's is linear beyond 20 and loses the gradient's last digits there.
    return -logsigmoid(logits.where(positive, -logits)).where(counts, 0.0)


@dataclass(frozen=True, kw_only=True)
class BinaryNCE:
    """Plain mean of ``binary_nce`` over all pairs that count."""

    temperature: float
    """τ > 0; the scores are divided by it."""

    def __post_init__(self) -> None:
        require_positive("BinaryNCE", temperature=self.temperature)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        return mean_over(binary_nce(scores / self.temperature, positive, candidate), positive | candidate)
