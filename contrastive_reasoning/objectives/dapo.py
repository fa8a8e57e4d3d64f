"""DAPO's loss, arXiv:2503.14476: GRPO with a higher upper clip, equal token weights and no KL.

        loss = 1/Σ|y_i| Σ_i Σ_t −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t)            high > low

Only the upper bound is raised, because it keeps an unlikely token from becoming likely. Other parts of the paper are
implemented elsewhere: dynamic sampling (``rollout=dynamic``) and the overlong punishment (a reward).
"""

from __future__ import annotations

from contrastive_reasoning.objectives.base import TokenMean
from contrastive_reasoning.objectives.grpo import GRPO


def DAPO(*, clip_low: float, clip_high: float, dual_clip: float | None) -> GRPO:
    """Returns GRPO with these clips. It ignores a reference."""
    return GRPO(
        clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip, kl_weight=0.0, kl=None, aggregation=TokenMean()
    )
