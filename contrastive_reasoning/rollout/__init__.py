"""Rollouts: the policy's completions, token-in and token-out, with the log-probs of their sampling."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.rollout.batch import FinishReason, RolloutBatch
    from contrastive_reasoning.rollout.engine import Engine
    from contrastive_reasoning.rollout.requests import RolloutEngine
    from contrastive_reasoning.rollout.sampling import Sampling, Seed
    from contrastive_reasoning.rollout.spans import token_bytes, token_spans, tokens_of_span

__getattr__ = lazy_getattr(__name__)
