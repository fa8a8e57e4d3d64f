"""Log-probs of a rollout batch under a policy, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.batch import RolloutTokens
from lightning_modules.microbatches import Microbatch


def log_probs(policy: CausalLMPolicy, microbatch: Microbatch, temperature: float) -> Tensor:
    """log π of the micro-batch's completions, (b,t)."""
    return policy.log_probs(
        microbatch.prompt_ids,
        microbatch.prompt_mask,
        microbatch.completion_ids,
        microbatch.mask,
        owner=microbatch.owner,
        temperature=temperature,
    )


@torch.no_grad()
def scores(policy: CausalLMPolicy, rollouts: RolloutTokens, split: Sequence[Microbatch]) -> Tensor:
    """log π of the rollouts in these micro-batches, (B,T); 0 elsewhere."""
    found = torch.zeros_like(rollouts.old_log_probs, dtype=torch.float64)
    for microbatch in split:
        part = log_probs(policy, microbatch, rollouts.temperature)
        if microbatch.idle:
            continue  # its row is scored elsewhere, with the rounding of its own micro-batch
        found[microbatch.rows, : part.shape[1]] = part.double()
    return found
