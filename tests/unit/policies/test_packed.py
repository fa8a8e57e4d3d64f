"""A packed pass compared with one row at a time: values, gradients and pooled states, in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.policies import causal_lm
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, log_probs_and_full_kl
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.pooling import mean_pool_rows
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.policies.varlen import FLASH, Kernel, Segments
from tests.tiny_models import tiny_llama, tiny_policy, tiny_qwen2
from tests.unit.lightning_modules.grpo_kit import exact_norm

TOKENIZERS = {kind: train_tokenizer(["1+2=3;3+4=7"], vocab_size=270, kind=kind) for kind in ("llama", "qwen2")}


@dataclass
class Rows:
    """Token counts of prompts and completions, and the index of each completion's prompt."""

    prompts: Sequence[int]
    completions: Sequence[int]
    owner: Sequence[int]

    def tensors(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        lengths, prompt_lengths = torch.tensor(self.completions), torch.tensor(self.prompts)
        width, prompt_width = max(*self.completions, 1), max(self.prompts)
        prompt_mask = torch.arange(prompt_width) >= prompt_width - prompt_lengths[:, None]
        mask = torch.arange(width) < lengths[:, None]
        return {
            "prompt_ids": torch.randint(3, 250, prompt_mask.shape, generator=generator) * prompt_mask,
            "prompt_mask": prompt_mask,
            "completion_ids": torch.randint(3, 250, mask.shape, generator=generator) * mask,
            "mask": mask,
            "owner": torch.tensor(self.owner),
        }


CASES = {
    "groups of two": Rows([5, 5], [4, 4, 4, 4], [0, 0, 1, 1]),
    "uneven, in several blocks": Rows([3, 17, 6], [1, 9, 30, 2, 14, 5, 5], [0, 0, 0, 1, 1, 2, 2]),
    "some empty": Rows([4, 9], [0, 3, 6, 0], [0, 0, 1, 1]),
    "all empty": Rows([4], [0, 0], [0, 0]),
    "one of each prompt": Rows([7, 2, 4], [3, 8, 1], [0, 1, 2]),
    "mixed up": Rows([6, 3], [5, 2, 7, 4], [1, 0, 1, 0]),
    "a prompt of one token": Rows([1, 5], [3, 4, 2], [0, 0, 1]),
    "a prompt nobody continues": Rows([4, 6], [3, 2], [1, 1]),
}
NO_SEGMENTS = ("mixed up", "all empty", "a prompt nobody continues")
"""Cases in which the completions of a prompt are apart, or have no tokens."""


class SlowKernel:
    """Attention segment by segment, with the whole matrix of probabilities, in any dtype on a CPU."""

    def __init__(self) -> None:
        self.calls = 0

    def takes(self, device: torch.device, dtype: torch.dtype) -> bool:
        return True

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        self.calls += 1
        output, total = torch.full_like(query, torch.nan), query.new_full((query.shape[1], len(query)), torch.nan)
        for q, k in spans(segments):
            scores = self._scores(query[q], key[k], causal, scale)
            total[:, q] = scores.logsumexp(-1)
            output[q] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), heads(value[k], query))
        return output, total

    def backward(
        self,
        gradient: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        total: Tensor,
        segments: Segments,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        to_query, to_key, to_value = (torch.zeros_like(part) for part in (query, key, value))
        for q, k in spans(segments):
            weights = (self._scores(query[q], key[k], causal, scale) - total[:, q, None]).exp()
            seen = torch.einsum("qhd,khd->hqk", gradient[q], heads(value[k], query))
            inner = (gradient[q] * output[q]).sum(-1).T[..., None]
            to_scores = weights * (seen - inner) * scale
            to_query[q] = torch.einsum("hqk,khd->qhd", to_scores, heads(key[k], query))
            to_key[k] += by_key_head(torch.einsum("hqk,qhd->khd", to_scores, query[q]), key)
            to_value[k] += by_key_head(torch.einsum("hqk,qhd->khd", weights, gradient[q]), key)
        return to_query, to_key, to_value

    def _scores(self, query: Tensor, key: Tensor, causal: bool, scale: float) -> Tensor:
        scores = torch.einsum("qhd,khd->hqk", query, heads(key, query)) * scale
        later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, -torch.inf) if causal else scores


def spans(segments: Segments) -> list[tuple[slice, slice]]:
    queries, keys = (pairwise(borders.tolist()) for borders in (segments.queries, segments.keys))
    return [(slice(*q), slice(*k)) for q, k in zip(queries, keys, strict=True)]


def heads(tokens: Tensor, query: Tensor) -> Tensor:
    return tokens.repeat_interleave(query.shape[1] // tokens.shape[1], dim=1)


def by_key_head(tokens: Tensor, key: Tensor) -> Tensor:
    return tokens.unflatten(1, (key.shape[1], -1)).sum(2)


def wide_model(kind: str, *, seed: int = 1, lora: bool = False) -> Any:
    """A model with large random weights, so that attention is not flat; its adapters are not zero."""
    make = tiny_llama if kind == "llama" else tiny_qwen2
    model: Any = make(TOKENIZERS[kind], hidden_size=32, seed=seed)
    if lora:
        model = LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules="all-linear").attach(model, seed=0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.15, generator=generator)
    return model


def build(kind: str, seed: int = 1, lora: bool = False, kernel: Kernel | None = None) -> CausalLMPolicy:
    model = wide_model(kind, seed=seed, lora=lora)
    for norm in (part for part in model.modules() if type(part).__name__.endswith("RMSNorm")):
        norm.forward = partial(exact_norm, norm)
    return tiny_policy(TOKENIZERS[kind], model.double(), attention=kernel)


@pytest.fixture(autouse=True)
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs at any cost."""
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: True)


def one_by_one(policy: CausalLMPolicy, given: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """log π and the states of each completion's tokens, from rows without padding and full logits."""
    log_probs, states = [], []
    for ids, mask, p in zip(given["completion_ids"], given["mask"], given["owner"].tolist(), strict=True):
        prompt = given["prompt_ids"][p][given["prompt_mask"][p]]
        output = policy.model(torch.cat([prompt, ids[mask]])[None], output_hidden_states=True)
        rows = output.logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        log_probs.append(rows.gather(1, ids[mask][:, None])[:, 0])
        states.append(output.hidden_states[-1][0, len(prompt) :])
    return log_probs, states


def log_probs_and_pooled(policy: CausalLMPolicy, *, temperature: float = 1.0, **given: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs and mean states of the completions, from one pass."""
    ids, mask, states = given["completion_ids"], given["mask"], policy.completion_states(**given)
    return policy.score_states(states.predicting, ids, mask, temperature), mean_pool_rows(states.own, mask)


def gradients(policy: CausalLMPolicy, loss: Tensor) -> dict[str, Tensor]:
    trained = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(trained.items(), found, strict=True)}


@pytest.mark.parametrize("segments", [False, True], ids=["blocks", "segments"])
@pytest.mark.parametrize(
    ("kind", "lora", "case"),
    [
        *(("llama", False, case) for case in CASES),
        *((kind, True, case) for kind in ("llama", "qwen2") for case in ("uneven, in several blocks", "some empty")),
        ("qwen2", False, "uneven, in several blocks"),
    ],
)
def test_packed_pass_equals_single_rows_in_value_and_gradient(kind: str, lora: bool, case: str, segments: bool) -> None:
    kernel = SlowKernel() if segments else None
    policy, given = build(kind, lora=lora, kernel=kernel), CASES[case].tensors()
    log_probs, pooled = log_probs_and_pooled(policy, **given)
    if kernel is not None:
        assert (kernel.calls > 0) == (case not in NO_SEGMENTS)
    expected, states = one_by_one(policy, given)
    for row, mask in enumerate(given["mask"]):
        assert_close(log_probs[row][mask], expected[row], rtol=1e-10, atol=1e-10)
        assert not log_probs[row][~mask].any()
        mean = states[row].mean(0) if len(states[row]) else torch.zeros_like(pooled[row])
        assert_close(pooled[row], mean, rtol=1e-10, atol=1e-10)
    upstream = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    naive = sum((e * u[m]).sum() for e, u, m in zip(expected, upstream, given["mask"], strict=True))
    wanted = gradients(policy, naive + sum(s.mean(0).sin().sum() for s in states if len(s)))
    got = gradients(policy, (log_probs * upstream).sum() + pooled.sin().sum())
    for name in wanted:
        assert_close(got[name], wanted[name], rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize("score", [CausalLMPolicy.log_probs, log_probs_and_pooled])
def test_packed_pass_equals_padded_rows(score: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    policy, given = build("qwen2"), CASES["mixed up"].tensors()
    packed = score(policy, **given, temperature=0.7)
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: False)
    assert_close(score(policy, **given, temperature=0.7), packed, rtol=1e-10, atol=1e-10)


def test_packed_full_kl_equals_padded_full_kl(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, reference, given = build("llama"), build("llama", seed=5), CASES["some empty"].tensors()
    packed = log_probs_and_full_kl(policy, reference, **given, temperature=0.7)
    assert packed[1][given["mask"]].min() > 1e-3
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: False)
    padded = log_probs_and_full_kl(policy, reference, **given, temperature=0.7)
    assert_close(packed, padded, rtol=1e-9, atol=1e-10)
    wanted, got = (gradients(policy, log_probs.sum() + kl.sum()) for log_probs, kl in (padded, packed))
    assert_close(got, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kernel", [None, SlowKernel()], ids=["blocks", "segments"])
def test_packed_pass_with_checkpointing_has_equal_gradients(kernel: Kernel | None) -> None:
    policy, given = build("llama", kernel=kernel), CASES["uneven, in several blocks"].tensors()
    wanted = gradients(policy, policy.log_probs(**given).sum())
    again = copy.deepcopy(policy)
    again.model.train()
    again.model.gradient_checkpointing_enable()
    assert_close(gradients(again, again.log_probs(**given).sum()), wanted, rtol=0, atol=0)


def test_packed_pass_in_bfloat16_is_close_to_float64() -> None:
    policy, given = build("llama"), CASES["uneven, in several blocks"].tensors()
    expected = policy.log_probs(**given).float()
    policy.float().compute_dtype = torch.bfloat16
    actual = policy.log_probs(**given)
    assert actual.dtype == torch.float32
    assert 0 < (actual - expected).abs().max() < 0.5
    assert all(g.isfinite().all() for g in gradients(policy, actual.sum()).values())


def test_policy_with_a_kernel_packs_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: False)
    lengths = causal_lm.Lengths(prompts=[5], completions=[4, 4], owner=[0, 0])
    assert build("llama", kernel=SlowKernel()).packs(lengths)
    assert not build("llama", kernel=FLASH).packs(lengths), "not on a CPU"


def test_empty_prompt_is_not_packed() -> None:
    policy = build("llama")
    lengths = causal_lm.Lengths(prompts=[0, 3], completions=[2, 2], owner=[0, 1])
    assert not policy.packs(lengths)
    assert policy.packs(causal_lm.Lengths(prompts=[1, 3], completions=[2, 2], owner=[0, 1]))
