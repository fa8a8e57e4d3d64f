"""Objectives with one importance ratio s for the whole completion: GSPO and GMPO.

Both take the geometric mean of the token ratios. GSPO clips the mean, GMPO clips the tokens before the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.base import ObjectiveInputs, TokenLosses, TokenObjective, ratio_metrics
from contrastive_reasoning.objectives.ratio import check_clips, clipped_surrogate, masked_log_ratio, sequence_ratio
from contrastive_reasoning.ranges import at_least


@dataclass(frozen=True, kw_only=True)
class GSPO(TokenObjective):
    """GSPO, arXiv:2507.18071: the ratio of the completion is clipped as a whole.

        ℓ_t = −min(s A_t, clip(s, 1 − low, 1 + high) A_t)            s = exp(1/|y| Σ_t log ρ_t)

    A mean of log-ratios is much closer to 0 than its terms, so the clips are a few 1e-4. A clipped completion has no
    gradient at all; in any other completion every token has one. ``ratio_mean``, ``ratio_max`` and ``clip_fraction``
    describe s; each token counts with its completion's s.
    """

    clip_low: float
    clip_high: float

    def __post_init__(self) -> None:
        check_clips(self.clip_low, self.clip_high)
        super().__post_init__()

    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        log_ratio = masked_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        ratio = sequence_ratio(log_ratio, inputs.mask)
        plain, clipped = clipped_surrogate(ratio, advantages, clip_low=self.clip_low, clip_high=self.clip_high)
        return torch.maximum(plain, clipped), ratio_metrics(ratio, log_ratio, clipped > plain, inputs)


@dataclass(frozen=True, kw_only=True)
class GMPO(TokenObjective):
    """GMPO, arXiv:2507.20673: the geometric mean of the token ratios, each clipped before averaging.

        ℓ_t = −s A_t            s = exp(1/|y| Σ_t b_t)            b_t = min(log ρ_t, high)    for A_t > 0
                                                                        max(log ρ_t, −low)    for A_t < 0

    The clip is in log space: 0.4 bounds a ratio by e^−0.4 and e^0.4. As in PPO's min, a bound applies only on the side
    on which moving further would improve the objective; a token that moved the wrong way keeps its gradient.
    ``clip_fraction`` is the share of clipped tokens; the ratios in the metrics are s of each completion.
    """

    clip_low: float
    """In log space: the lower bound of log ρ for a token with A < 0 is −clip_low."""
    clip_high: float
    """In log space: the upper bound of log ρ for a token with A > 0."""

    def __post_init__(self) -> None:
        at_least(0, clip_low=self.clip_low, clip_high=self.clip_high)
        super().__post_init__()

    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        log_ratio = masked_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        bounded = self.bound(log_ratio, advantages)
        ratio = sequence_ratio(bounded, inputs.mask)
        clipped = (bounded != log_ratio) & (advantages != 0)
        return -ratio * advantages, ratio_metrics(ratio, log_ratio, clipped, inputs)

    def bound(self, log_ratio: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns b of each token; 0 for a token without advantage, as if its ratio were 1."""
        risen = torch.where(advantages > 0, log_ratio.clamp(max=self.clip_high), 0.0)
        return torch.where(advantages < 0, log_ratio.clamp(min=-self.clip_low), risen)
