"""Pooled hidden states of completions against one plain forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.tasks.base import Problem
from tests.hf_engine import HFEngine

ENGINE = Engine(max_batch_tokens=10_000)
SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=24, stop=[])


def mean_states(policy: CausalLMPolicy, rollouts: RolloutBatch) -> Float[Tensor, "B D"]:
    """Mean hidden state of each row by itself, over all completion tokens: no padding, no cache, no batch."""
    rows = []
    for row in range(len(rollouts)):
        p, n = row // rollouts.group_size, int(rollouts.mask[row].sum())
        prompt = rollouts.prompt_ids[p][rollouts.prompt_mask[p]]
        ids = torch.cat([prompt, rollouts.completion_ids[row, :n]])
        with torch.no_grad():
            states = policy.model(ids[None], output_hidden_states=True).hidden_states[-1][0]
        rows.append(states[len(prompt) :].mean(dim=0))
    return torch.stack(rows)


@pytest.mark.parametrize("stop", [[], ["7"]], ids=["no-stop", "stop"])
@pytest.mark.parametrize("engine", [ENGINE, HFEngine(max_batch_tokens=10_000)], ids=["own", "hf"])
def test_pooled_states_equal_mean_states_of_a_plain_forward_pass(
    any_policy: CausalLMPolicy, problems: Sequence[Problem], engine: Engine | HFEngine, stop: list[str]
) -> None:
    sampling = replace(SAMPLED, max_tokens=40, stop=stop)
    plain, pooled = (
        engine.generate(any_policy, problems, group_size=6, sampling=sampling, seed=(3,), pooled=pooled)
        for pooled in (False, True)
    )
    assert plain.pooled is None
    assert pooled.pooled is not None
    assert torch.equal(pooled.completion_ids, plain.completion_ids)
    assert set(pooled.finish_reasons) == {"stop", "length"}
    assert pooled.mask.sum(1).unique().numel() > 1, "rows of several lengths"
    any_policy.model.eval()
    torch.testing.assert_close(pooled.pooled, mean_states(any_policy, pooled), atol=2e-5, rtol=1e-4)
    any_policy.model.train()
