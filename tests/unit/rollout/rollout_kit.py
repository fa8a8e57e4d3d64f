"""Models whose completions differ, and the log-probs of completions one row at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem

Problems = Sequence[Problem]


def with_spread(build: Callable[[], Any]) -> Any:
    """A model with weights of a large spread: completions differ, and some of them end before the token limit."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        model = build()
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 or name.endswith("bias"):
                parameter.normal_(std=0.15)
    return model


def row_by_row(policy: CausalLMPolicy, rollouts: RolloutBatch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B D"]]:
    """Log-probs and mean hidden states of each row by itself: no padding, no cache, no batch."""
    log_probs, states = torch.zeros_like(rollouts.old_log_probs), []
    policy.model.eval()
    for row in range(len(rollouts)):
        p, ids = row // rollouts.group_size, rollouts.completion_ids[row][rollouts.mask[row]]
        prompt = rollouts.prompt_ids[p][rollouts.prompt_mask[p]]
        with torch.no_grad():
            output = policy.model(torch.cat([prompt, ids])[None], output_hidden_states=True)
        scores = (output.logits[0, len(prompt) - 1 : -1] / rollouts.temperature).log_softmax(-1)
        log_probs[row, : len(ids)] = scores.gather(-1, ids[:, None])[:, 0]
        states.append(output.hidden_states[-1][0, len(prompt) :].mean(dim=0))
    policy.model.train()
    return log_probs, torch.stack(states)
