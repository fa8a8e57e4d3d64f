"""Our engine on the real model: against ``generate`` of transformers, and against plain forward passes.

All in float32, whose rounding differs between a batch and one row: over 30 layers a log-prob differs by some 1e-5.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.tasks.base import Problem
from tests.real.conftest import QUESTIONS, Written, drawn
from tests.unit.rollout.test_engine import recomputed

pytestmark = pytest.mark.real
LARGEST = 1e-4
"""Difference of a log-prob, in nats."""


def test_greedy_tokens_match_transformers_generate(
    policy: CausalLMPolicy, record_property: pytest.RecordProperty
) -> None:
    """``generate`` gets each prompt alone, without padding. Both must end at the same token."""
    problems = [Problem(id=str(n), prompt=prompt, answer="") for n, prompt in enumerate(QUESTIONS)]
    rollouts = drawn(policy, problems, group_size=1, temperature=0.0, max_tokens=16)
    apart = []
    for row, question in enumerate(QUESTIONS):
        ids = torch.tensor([policy.prompt_ids(question)])
        with torch.no_grad():
            made = policy.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=16,
                do_sample=False,
                eos_token_id=list(policy.eos_token_ids),
                pad_token_id=policy.pad_token_id,
                output_logits=True,
                return_dict_in_generate=True,
            )
        tokens = made.sequences[0, ids.shape[1] :]
        assert torch.equal(rollouts.completion_ids[row][rollouts.mask[row]], tokens)
        expected = log_probs(torch.cat(made.logits), tokens)
        apart.append(float((rollouts.old_log_probs[row][rollouts.mask[row]] - expected).abs().max()))
    record_property("largest difference of log-probs, greedy", max(apart))
    assert max(apart) <= LARGEST


@pytest.mark.parametrize("batch", ["written", "played"])
def test_sampled_log_probs_match_plain_forward_pass(
    batch: str, request: pytest.FixtureRequest, record_property: pytest.RecordProperty
) -> None:
    made: Written = request.getfixturevalue(batch)
    apart = (recomputed(made.policy, made.rollouts) - made.rollouts.old_log_probs).abs().max().item()
    record_property(f"largest difference of log-probs, {batch}", apart)
    assert made.rollouts.old_log_probs.min() < -1, "not all tokens are certain"
    assert apart <= LARGEST


def log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.float().log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
