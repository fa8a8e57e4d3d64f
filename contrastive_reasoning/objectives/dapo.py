"""DAPO's loss, arXiv:2503.14476: GRPO with a higher upper clip, every token weighing the same, and no KL.

        loss = 1/Σ|y_i| Σ_i Σ_t −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t)            high > low

The upper bound is what keeps an unlikely token from becoming likely, so it is the one that is raised. The other parts
of the paper are elsewhere: dynamic sampling (``rollout=dynamic``), the overlong punishment (a reward).
"""

from __future__ import annotations

from contrastive_reasoning.objectives.base import TokenMean
from contrastive_reasoning.objectives.grpo import GRPO


def DAPO(*, clip_low: float, clip_high: float, dual_clip: float | None) -> GRPO:
    """GRPO with these clips, which ignores a reference."""
    return GRPO(
        clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip, kl_weight=0.0, kl=None, aggregation=TokenMean()
    )
