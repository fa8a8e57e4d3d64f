"""GRPO's clipped surrogate, arXiv:2402.03300, with the clips apart so that its kin are settings of it:

        ℓ_t = −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t) + β · KL_t
        ρ_t = π(y_t) / π_old(y_t)

With ``dual_clip`` c (arXiv:1912.09729) a token with A < 0 costs at most c·|A|, however large its ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives.aggregate import Aggregation
from contrastive_reasoning.objectives.base import ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.kl import KL
from contrastive_reasoning.objectives.metrics import token_max, token_mean
from contrastive_reasoning.objectives.ratio import token_log_ratio


@dataclass(frozen=True, kw_only=True)
class GRPO:
    clip_low: float
    clip_high: float
    dual_clip: float | None
    """The most a token with a negative advantage may cost, in units of |A|; None: no such limit."""
    kl_weight: float
    kl: KL | None
    """The estimator of the KL to the reference. There is no KL term without it, nor without a reference."""
    aggregation: Aggregation

    def __post_init__(self) -> None:
        if not 0 <= self.clip_low < 1:
            raise ValueError(f"clip_low must lie in [0, 1), got {self.clip_low}")
        if self.clip_high < 0:
            raise ValueError(f"clip_high must not be negative, got {self.clip_high}")
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f"dual_clip must be above 1 (or null), got {self.dual_clip}")
        if self.kl_weight < 0:
            raise ValueError(f"kl_weight must not be negative, got {self.kl_weight}")

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return self.aggregation.weights(mask, rows=rows, tokens=tokens)

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        log_ratio = token_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        ratio = log_ratio.exp()
        advantages = torch.where(inputs.mask, inputs.advantages, 0.0)
        plain, clipped, bounded = self.surrogates(ratio, advantages)
        metrics = {
            "clip_fraction": token_mean(clipped > plain, inputs),
            "ratio_mean": token_mean(ratio, inputs),
            "ratio_max": token_max(ratio, inputs),
            "approx_kl": token_mean(-log_ratio, inputs),
        }
        if self.dual_clip is not None:
            metrics["dual_clip_fraction"] = token_mean(bounded < torch.maximum(plain, clipped), inputs)
        loss = self.aggregated(bounded, inputs)
        if inputs.ref_log_probs is not None and self.kl is not None:
            divergence = self.divergence(self.kl, inputs)
            metrics["kl"] = token_mean(divergence, inputs)
            loss = loss + self.kl_weight * self.aggregated(divergence, inputs)
        return ObjectiveOutputs(loss=loss, metrics=metrics)

    def surrogates(
        self, ratio: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Losses per token: without clipping, with clipped ratios, and the one that counts."""
        plain = -ratio * advantages
        clipped = -ratio.clamp(1 - self.clip_low, 1 + self.clip_high) * advantages
        bounded = torch.maximum(plain, clipped)
        if self.dual_clip is not None:
            bounded = torch.where(advantages < 0, torch.minimum(bounded, -self.dual_clip * advantages), bounded)
        return plain, clipped, bounded

    def divergence(self, kl: KL, inputs: ObjectiveInputs) -> Float[Tensor, "B T"]:
        """KL per token; 0 outside the mask whatever is stored there."""
        assert inputs.ref_log_probs is not None
        return kl(torch.where(inputs.mask, inputs.log_probs, 0.0), torch.where(inputs.mask, inputs.ref_log_probs, 0.0))

    def aggregated(self, values: Float[Tensor, "B T"], inputs: ObjectiveInputs) -> Float[Tensor, ""]:
        weights = inputs.weights
        if weights is None:
            rows, tokens = float(inputs.mask.any(dim=1).sum()), float(inputs.mask.sum())
            weights = self.weights(inputs.mask, rows=max(rows, 1.0), tokens=tokens)
        return (weights.to(values.dtype) * values).sum()
