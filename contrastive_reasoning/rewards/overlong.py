"""Soft overlong punishment of DAPO, arXiv:2503.14476: the last stretch before the limit costs more with every token.

                 0                              |y| ≤ L_max − L_cache
        r(y) =   (L_max − L_cache − |y|) / L_cache     up to L_max
                 −1                             beyond

A completion that is cut off at the limit would otherwise be punished as a whole for what may have been sound. It knows
nothing of correctness: add it to any reward by a ``WeightedSum``.
"""

from __future__ import annotations

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch


class OverlongReward:
    """Between −1 and 0, by the length of the completion in tokens, its end token included.

    Args:
        max_tokens: L_max, usually the most tokens a completion may have; −1 is then reached at the limit itself.
        cache_share: L_cache / L_max in (0, 1], the stretch of growing punishment.

    Raises:
        ValueError: for a setting outside its range.
    """

    def __init__(self, *, max_tokens: int, cache_share: float) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        if not 0 < cache_share <= 1:
            raise ValueError(f"cache_share must lie in (0, 1], got {cache_share}")
        self.max_tokens = max_tokens
        self.cache_tokens = cache_share * max_tokens

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        lengths = rollouts.mask.sum(dim=1).to(rollouts.old_log_probs.dtype)
        outcome = ((self.max_tokens - self.cache_tokens - lengths) / self.cache_tokens).clamp(-1.0, 0.0)
        return Credit(outcome=outcome, parts={"overlong": outcome})
