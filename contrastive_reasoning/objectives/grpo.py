"""GRPO's clipped surrogate, arXiv:2402.03300, with separate clips so that its variants are settings of it:

        ℓ_t = −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t) + β · KL_t
        ρ_t = π(y_t) / π_old(y_t)

With ``dual_clip`` c (arXiv:1912.09729) the loss of a token with A < 0 is at most c·|A| at any ratio. ``DAPO`` and
``DrGRPO`` are such settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.base import (
    ConstantLength,
    ObjectiveInputs,
    TokenLosses,
    TokenMean,
    TokenObjective,
    ratio_metrics,
    token_mean,
)
from contrastive_reasoning.objectives.kl import KL, FullKL
from contrastive_reasoning.objectives.ratio import check_clips, clipped_surrogate, token_log_ratio


@dataclass(frozen=True, kw_only=True)
class GRPO(TokenObjective):
    clip_low: float
    clip_high: float
    dual_clip: float | None
    """Upper bound of the loss of a token with a negative advantage, in units of |A|; None: no bound."""

    def __post_init__(self) -> None:
        check_clips(self.clip_low, self.clip_high)
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f"dual_clip must be above 1 (or null), got {self.dual_clip}")
        super().__post_init__()

    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        log_ratio = token_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        ratio = log_ratio.exp()
        plain, clipped = clipped_surrogate(ratio, advantages, clip_low=self.clip_low, clip_high=self.clip_high)
        losses = torch.maximum(plain, clipped)
        metrics = ratio_metrics(ratio, log_ratio, clipped > plain, inputs)
        if self.dual_clip is not None:
            bounded = torch.where(advantages < 0, torch.minimum(losses, -self.dual_clip * advantages), losses)
            metrics["dual_clip_fraction"] = token_mean(bounded < losses, inputs)
            losses = bounded
        return losses, metrics


def DAPO(*, clip_low: float, clip_high: float, dual_clip: float | None) -> GRPO:
    """Returns DAPO's loss, arXiv:2503.14476: GRPO with a higher upper clip, equal token weights and no KL.

        loss = 1/Σ|y_i| Σ_i Σ_t −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t)            high > low

    It ignores a reference. Only the upper bound is raised, because it keeps an unlikely token from becoming likely.
    Other parts of the paper are implemented elsewhere: dynamic sampling (``rollout=dynamic``) and the overlong
    punishment (a reward).
    """
    return GRPO(
        clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip, kl_weight=0.0, kl=None, aggregation=TokenMean()
    )


def DrGRPO(*, clip_low: float, clip_high: float, length: int, kl_weight: float, kl: KL | FullKL | None) -> GRPO:
    """Returns Dr.GRPO, arXiv:2503.20783: GRPO with the loss divided by a constant length, without the length bias.

        loss = 1/(B L) Σ_i Σ_t ℓ_{i,t}            ℓ as in GRPO

    ``length`` is L, usually the token limit of a completion. The paper's other change is in the advantage: no division
    by the standard deviation (``MeanCentred``).
    """
    return GRPO(
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=None,
        kl_weight=kl_weight,
        kl=kl,
        aggregation=ConstantLength(length=length),
    )
