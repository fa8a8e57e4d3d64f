"""Rollouts by CUDA graphs on a GPU: the same as without, and really by graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem
from tests.tiny_models import loaded_policy

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=96, stop=[])
PROBLEMS = [Problem(id=str(n), prompt=f"Numbers: {[n, n + 3, 7]}, target: {2 * n}\n", answer="") for n in range(9)]


@pytest.fixture(scope="module", params=["weights", "adapters"])
def policy(request: pytest.FixtureRequest) -> CausalLMPolicy:
    lora = LoRA(rank=4, alpha=8.0, dropout=0.0, target_modules="all-linear") if request.param == "adapters" else None
    policy = loaded_policy("embedded:llama_countdown", lora=lora).cuda()
    change_weights(policy)
    return policy


def change_weights(policy: CausalLMPolicy) -> None:
    """Adds noise to all trained weights, so that adapters are not zero."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in policy.parameters():
            if weight.requires_grad:
                weight += 0.01 * torch.randn_like(weight)


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
@pytest.mark.parametrize(
    "sampling",
    [SAMPLED, replace(SAMPLED, temperature=0.0), replace(SAMPLED, top_k=5), replace(SAMPLED, stop=["="])],
    ids=["sampled", "greedy", "top-k", "stop"],
)
@pytest.mark.parametrize("budget", [2_000, 100_000])
def test_rollouts_by_graphs_are_those_without(
    policy: CausalLMPolicy, budget: int, sampling: Sampling, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = 0
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph: torch.cuda.CUDAGraph) -> None:
        nonlocal replays
        replays += 1
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    for _ in range(2):
        plain, graphed = (
            Engine(max_batch_tokens=budget, cuda_graphs=graphs).generate(
                policy, PROBLEMS, group_size=8, sampling=sampling, seed=(1,), pooled=pooled
            )
            for graphs in (False, True)
        )
        assert graphed.texts == plain.texts
        torch.testing.assert_close(graphed.old_log_probs, plain.old_log_probs, atol=1e-4, rtol=0)
        if pooled:
            torch.testing.assert_close(graphed.pooled, plain.pooled, atol=1e-3, rtol=1e-3)
        change_weights(policy)
    assert replays > 10
