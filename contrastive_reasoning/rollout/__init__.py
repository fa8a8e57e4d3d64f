"""Rollouts: the policy's completions, token-in and token-out, with the log-probs of their sampling."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.rollout.batch import FinishReason as FinishReason, RolloutBatch as RolloutBatch
    from contrastive_reasoning.rollout.engine import Engine as Engine
    from contrastive_reasoning.rollout.requests import RolloutEngine as RolloutEngine
    from contrastive_reasoning.rollout.sampling import Sampling as Sampling, Seed as Seed
    from contrastive_reasoning.rollout.spans import (
        token_bytes as token_bytes,
        token_spans as token_spans,
        tokens_of_span as tokens_of_span,
    )

__getattr__ = lazy_getattr(__name__)
