"""The clipped surrogate of PPO, arXiv:1707.06347, per token:  ℓ = −min(ρ A, clip(ρ, 1 − low, 1 + high) A).

What ρ is — the token's own ratio, or its sequence's — is the objective's matter.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def clipped_surrogate(
    ratio: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"], *, clip_low: float, clip_high: float
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Losses per token with the ratio as it is and with the clipped one; the larger of the two is the one that counts.

    Where the clipped one is larger it is a constant: the token has moved as far as it may and has no gradient.
    """
    return -ratio * advantages, -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages


def check_clips(clip_low: float, clip_high: float) -> None:
    """Refuse bounds (1 − low, 1 + high) that are not around 1 or reach down to 0."""
    if not 0 <= clip_low < 1:
        raise ValueError(f"clip_low must lie in [0, 1), got {clip_low}")
    if clip_high < 0:
        raise ValueError(f"clip_high must not be negative, got {clip_high}")
