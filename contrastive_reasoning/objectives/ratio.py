"""Importance ratios, computed in log space: the clipped ratio of the update and the ratio to the sampling engine.

        ρ_t = π(y_t) / π_old(y_t)            ℓ_t = −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t)

ℓ_t is the clipped surrogate of PPO, arXiv:1707.06347. An engine with other kernels or another dtype samples from μ,
while the trainer computes π_old with the same weights. The ratio of the two converts an expectation under μ to one
under π_old. It is truncated to bound its variance (truncated importance sampling in Yao et al., "On the
Rollout-Training Mismatch in Modern RL Systems", 2025; the truncation is from Ionides, 2008):

    per token        w_t = min( π_old(y_t) / μ(y_t), C )            low variance; biased, as the prefix is μ's too
    per sequence     w   = min( Π_t π_old(y_t) / μ(y_t), C )        unbiased except for the cap; spreads with length

These weights are constants for the gradient; they multiply the losses of the tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.ranges import at_least, within

LOG_RATIO_BOUND = 20.0
"""exp(20) ≈ 5e8 is finite in fp32 and bf16; beyond it the gradient is 0, as in verl's vanilla policy loss."""

SEQUENCE_LOG_RATIO_BOUND = 10.0
"""Bound of the mean log-ratio of a completion, which is much smaller than its terms; as in verl's GSPO loss."""


def masked_log_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Returns log ρ of each token, unbounded; 0, without gradient, outside ``mask``, even for nan."""
    return torch.where(mask, log_probs, 0.0) - torch.where(mask, old_log_probs, 0.0)


def token_log_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Returns log ρ of each token within ±``LOG_RATIO_BOUND``; 0, without gradient, outside ``mask``, even for nan."""
    return masked_log_ratio(log_probs, old_log_probs, mask).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def token_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Returns ρ of each token; 1 outside ``mask``."""
    return token_log_ratio(log_probs, old_log_probs, mask).exp()


def sequence_ratio(log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Returns exp of a completion's mean log-ratio on each of its tokens; at most e^``SEQUENCE_LOG_RATIO_BOUND``.

    Every token's copy has the common value and the gradient of that token's own log-ratio:

        s_t = sg(s) · ρ_t / sg(ρ_t)            Σ_t A s_t  has the gradient of  |y| A s

    An advantage that is the same on all tokens therefore gives the gradient of the sequence formula. An advantage that
    differs between steps stays on the tokens of its step; a common factor would average it away.
    """
    mean = torch.where(mask, log_ratio, 0.0).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp_min(1)
    own = log_ratio - log_ratio.detach()
    return (mean.detach() + own).clamp(max=SEQUENCE_LOG_RATIO_BOUND).exp()


def clipped_surrogate(
    ratio: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"], *, clip_low: float, clip_high: float
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Returns the losses per token for the plain and for the clipped ratio; the larger of the two counts.

    If the clipped loss is larger, it is constant: the token has reached its bound and has no gradient.
    """
    return -ratio * advantages, -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages


def check_clips(clip_low: float, clip_high: float) -> None:
    """Raises ValueError for bounds (1 − low, 1 + high) that do not enclose 1 or reach 0."""
    within("[0, 1)", clip_low=clip_low)
    at_least(0, clip_high=clip_high)


@runtime_checkable
class Correction(Protocol):
    """Weights of the tokens' losses that correct for sampling by another engine; 1 outside ``mask``."""

    def __call__(
        self, old_log_probs: Float[Tensor, "B T"], engine_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Returns the weights from log π_old (by the trainer, at sampling temperature) and log μ (by the engine)."""
        ...


@dataclass(frozen=True)
class NoCorrection:
    """A weight of 1 for every token, for an engine with the same log-probs as the trainer up to rounding."""

    def __call__(self, old_log_probs: Tensor, engine_log_probs: Tensor, mask: Tensor) -> Tensor:
        return torch.ones_like(old_log_probs)


@dataclass(frozen=True, kw_only=True)
class TokenCorrection:
    """The weight of each token, at most C = ``cap``, which is at least 1."""

    cap: float

    def __post_init__(self) -> None:
        _check(self.cap)

    def __call__(self, old_log_probs: Tensor, engine_log_probs: Tensor, mask: Tensor) -> Tensor:
        return _truncate(masked_log_ratio(old_log_probs.detach(), engine_log_probs.detach(), mask), self.cap)


@dataclass(frozen=True, kw_only=True)
class SequenceCorrection:
    """The weight of each completion, at most C = ``cap``, on each of its tokens."""

    cap: float

    def __post_init__(self) -> None:
        _check(self.cap)

    def __call__(self, old_log_probs: Tensor, engine_log_probs: Tensor, mask: Tensor) -> Tensor:
        log_ratio = masked_log_ratio(old_log_probs.detach(), engine_log_probs.detach(), mask)
        return torch.where(mask, _truncate(log_ratio.sum(dim=1, keepdim=True), self.cap), 1.0)


def _truncate(log_ratio: Float[Tensor, "B t"], cap: float) -> Float[Tensor, "B t"]:
    # truncated in log space, so that no ratio overflows; the second clamp is for exp(log C) rounding above C
    return log_ratio.clamp(max=math.log(cap)).exp().clamp(max=cap)


def _check(cap: float) -> None:
    if cap < 1:
        raise ValueError(f"cap must be at least 1, got {cap}: below it, rollouts without a mismatch are cut too")
