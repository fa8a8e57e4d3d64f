"""Pooled states by passes of their own, for engines whose passes are not ours to look into."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.engine import evaluating
from contrastive_reasoning.rollout.requests import Requests


@torch.no_grad()
def pooled_states(
    policy: CausalLMPolicy, requests: Requests, rollouts: RolloutBatch, *, max_batch_tokens: int
) -> Float[Tensor, "B D"]:
    """Mean hidden states of the completions; ``max_batch_tokens`` bounds rows · (prompt + completion) of a pass."""
    parts = []
    with evaluating(policy.model):
        for rows in requests.chunks(max_batch_tokens):
            ids, mask, owner = requests.prompts_of(rows)
            span = slice(rows.start, rows.stop)
            completions, written = rollouts.completion_ids[span], rollouts.mask[span]
            parts.append(policy.log_probs_and_pooled(ids, mask, completions, written, owner=owner)[1])
    return torch.cat(parts)
