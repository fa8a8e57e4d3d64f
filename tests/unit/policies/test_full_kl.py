from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, log_probs_and_full_kl
from contrastive_reasoning.policies.log_probs import full_kl, token_log_probs
from contrastive_reasoning.policies.tiny import train_tokenizer
from tests.tiny_models import tiny_llama, tiny_policy


def two_policies(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Hidden states and projections of 5 tokens over 11 words; the reference is narrower."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 8), (11, 8), (5, 6), (11, 6)]
    return [torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def by_loops(
    hidden: Tensor, weight: Tensor, ref_hidden: Tensor, ref_weight: Tensor, scaling: dict[str, float]
) -> Tensor:
    def distribution(logits: Tensor, prefix: str) -> Tensor:
        cap = scaling.get(f"{prefix}softcap", math.inf)
        capped = logits if cap == math.inf else cap * (logits / cap).tanh()
        return (capped / scaling.get(f"{prefix}temperature", scaling["temperature"])).softmax(0)

    rows = []
    for h, r in zip(hidden, ref_hidden, strict=True):
        p, q = distribution(weight @ h, ""), distribution(ref_weight @ r, "ref_")
        rows.append(sum(p[v] * (p[v] / q[v]).log() for v in range(len(p))))
    return torch.stack(rows)  # pyright: ignore


@pytest.mark.parametrize("chunk", [1, 3, 5, 100])
@pytest.mark.parametrize(
    "scaling",
    [
        {"temperature": 0.3},
        {"temperature": 1.0},
        {"temperature": 0.7, "softcap": 2.0, "ref_temperature": 0.4, "ref_softcap": 3.0},
    ],
    ids=["sharp", "plain", "capped"],
)
def test_full_kl_equals_loops_in_value_and_gradient(chunk: int, scaling: dict[str, float]) -> None:
    given = [part.requires_grad_() for part in two_policies()]
    upstream = torch.randn(5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected, actual = by_loops(*given, scaling), full_kl(*given, chunk=chunk, **scaling)
    assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    wanted = torch.autograd.grad(expected, given, upstream)
    for g, w in zip(torch.autograd.grad(actual, given, upstream), wanted, strict=True):
        assert_close(g, w, rtol=1e-10, atol=1e-10)


def test_full_kl_sums_half_precision_in_fp32() -> None:
    given = two_policies(torch.bfloat16)
    actual = full_kl(*given, temperature=1.0, chunk=2)
    hidden, weight, ref_hidden, ref_weight = given
    p, q = (hidden @ weight.T).float().log_softmax(1), (ref_hidden @ ref_weight.T).float().log_softmax(1)
    assert actual.dtype == torch.float32
    assert_close(actual, (p.exp() * (p - q)).sum(1))


def test_full_kl_saves_no_vocabulary_blocks_for_backward() -> None:
    """Autograd keeps only the inputs and the results, never a chunk × V block."""
    hidden, weight = torch.randn(64, 4, requires_grad=True), torch.randn(1000, 4, requires_grad=True)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        full_kl(hidden, weight, hidden.detach(), weight.detach(), temperature=1.0, chunk=8)
    assert max(kept, default=0) <= weight.numel()


def test_log_probs_and_full_kl_uses_score_function_of_policy() -> None:
    def doubled(*arguments: Tensor, **settings: Any) -> Tensor:
        return 2 * token_log_probs(*arguments, **settings)

    tokenizer = train_tokenizer(["1+2=3;3+4=7"], vocab_size=270)
    settings: dict[str, Any] = {"tokenizer": tokenizer, "compute_dtype": torch.float32, "chat_template": False}
    policy, other = (
        CausalLMPolicy(model=tiny_llama(tokenizer, hidden_size=16), score=score, **settings)
        for score in (token_log_probs, doubled)
    )
    tokens = *policy.encode_prompts(["1+2"]), *policy.encode_completions(["=3;"])
    (plain, _), (twice, _) = (log_probs_and_full_kl(one, policy, *tokens, temperature=1.0) for one in (policy, other))
    assert_close(twice, 2 * plain)


def test_log_probs_and_full_kl_equals_separate_computations() -> None:
    """Equals ``policy.log_probs`` and the KL of softmaxes of full logits; the reference gets no gradient."""
    tokenizer = train_tokenizer(["1+2=3;3+4=7"], vocab_size=270)
    policy, reference = (
        tiny_policy(tokenizer, tiny_llama(tokenizer, seed=seed, hidden_size=16), chunk=2) for seed in (0, 1)
    )
    prompt = policy.encode_prompts(["1+2", "3"])
    completion = policy.encode_completions(["=3;", "+4=7"])
    log_probs, divergence = log_probs_and_full_kl(policy, reference, *prompt, *completion, temperature=0.7)
    assert torch.equal(log_probs, policy.log_probs(*prompt, *completion, temperature=0.7))
    ids, mask = (torch.cat(pair, dim=1) for pair in zip(prompt, completion, strict=True))
    start = prompt[0].shape[1] - 1
    p, q = (
        (one.model.get_output_embeddings()(one.hidden_states(ids, mask))[:, start:-1] / 0.7).log_softmax(-1)
        for one in (policy, reference)
    )
    assert_close(divergence, (p.exp() * (p - q)).sum(-1) * completion[1])
    divergence.sum().backward()
    assert all(parameter.grad is None for parameter in reference.parameters())
    assert any(parameter.grad is not None for parameter in policy.parameters())
