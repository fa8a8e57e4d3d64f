"""Credit by eligibility traces without a critic, after GRPO-λ, arXiv:2510.00194, known only from secondary sources.

        A_{i,l} = Σ_{t≥l} λ^{t−l} max(Âᵢ, floor)        Âᵢ the outcome's advantage, in place of each token's TD error

According to them the paper puts the trace into the importance ratio of token t, which also updates earlier tokens:

        ratio_t = exp( Σ_{l≤t} (γλ)^{t−l} (log π_l − log π_old,l) )        objective = Σ_t min(ratio_t Âᵢ, clip(…) Âᵢ)

At π = π_old its gradient equals that of Σ_l A_{i,l} log π_l with the A above (γ = 1). This module computes that A, so
the first update of a rollout batch is the same. Later updates differ, because our objectives clip the ratio of the
single token. Among the paper's traces this is the one that decays backwards from t.

λ = 0 without a floor is the outcome alone. Early tokens get more, up to Âᵢ / (1 − λ): the sum is not normalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, refuse_memory
from contrastive_reasoning.ranges import within
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class GRPOLambda:
    outcome: Advantage
    """The advantage of the whole rollout."""
    decay: float
    """λ, the share of a token's credit that the preceding token also gets."""
    floor: float | None
    """Lower bound of the advantages; None: no bound. Traces of negative advantages are said to destabilise training."""

    def __post_init__(self) -> None:
        refuse_memory(type(self).__name__, self.outcome)
        within("[0, 1]", decay=self.decay)
        if self.floor is not None and not self.floor <= 0:
            raise ValueError(f"floor must not be positive, got {self.floor}")

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        outcome = self.outcome(credit, mask, group_size)
        if self.floor is not None:
            outcome = outcome.clamp(min=self.floor)
        return trace(outcome * mask, decay=self.decay) * mask


def trace(values: Float[Tensor, "B T"], *, decay: float) -> Float[Tensor, "B T"]:
    """Returns Σ_{t≥l} λ^{t−l} v_t for every token l."""
    sums = torch.zeros_like(values)
    following = values.new_zeros(len(values))
    for token in reversed(range(values.shape[1])):
        following = values[:, token] + decay * following
        sums[:, token] = following
    return sums
