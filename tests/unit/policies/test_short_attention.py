"""Attention by products equals the softmax written out, in value and gradient, and keeps its scores in fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.policies import packed, short_attention
from contrastive_reasoning.policies.packed import causal_block, continuing_block

ROWS, KEY_HEADS, SHARES, QUERIES, KEYS, WIDTH = 3, 2, 2, 4, 6, 5
SCALE = 0.3


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def mask_of(rows: int) -> Tensor:
    allowed = torch.rand(rows, 1, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(4)) < 0.6
    allowed[..., 0] = True
    return torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf"))


def slow(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """One query after the other."""
    rows = []
    for row in range(len(query)):
        seen = mask[row if len(mask) > 1 else 0, 0, 0]
        for head in range(KEY_HEADS):
            for share in range(SHARES):
                for place in range(QUERIES):
                    scores = SCALE * key[row, head] @ query[row, head, share, place] + seen[place]
                    rows.append(scores.softmax(0) @ value[row, head])
    return torch.stack(rows).view(query.shape)


@pytest.mark.parametrize("masks", [1, ROWS])
@pytest.mark.parametrize("at_once", [1, short_attention.SCORES_AT_ONCE])
def test_equals_one_query_after_the_other(masks: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_attention, "SCORES_AT_ONCE", at_once)
    query = draw(ROWS, KEY_HEADS, SHARES, QUERIES, WIDTH, seed=1)
    key, value = (draw(ROWS, KEY_HEADS, KEYS, WIDTH, seed=seed) for seed in (2, 3))
    got, wanted = (f(query, key, value, mask_of(masks)) for f in (with_scale, slow))
    assert_close(got, wanted, rtol=1e-10, atol=1e-12)
    upstream = draw(*query.shape, seed=5).detach()
    for each in zip(*(torch.autograd.grad(out, (query, key, value), upstream) for out in (got, wanted)), strict=True):
        assert_close(*each, rtol=1e-10, atol=1e-12)


def with_scale(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return short_attention.short_attention(query, key, value, mask, SCALE)


def test_scores_are_not_rounded_to_bfloat16() -> None:
    query = torch.tensor([[16.0, 1.0]], dtype=torch.bfloat16)[None, None, None]
    key = torch.tensor([[16.0, 0.0], [16.0, 1.0]], dtype=torch.bfloat16)[None, None]
    value = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.bfloat16)[None, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = short_attention.short_attention(query, key, value, torch.zeros(1, 1, 1, 1, 2), 1.0)
    # scores of 256 and 257, which are one number in bfloat16
    assert_close(output.float().flatten(), torch.sigmoid(torch.ones(2)), rtol=1e-2, atol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_block_computes_the_same_by_products_and_by_the_kernel(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, lengths = torch.tensor([5, 9]), torch.tensor([4, 3])
    prompts = torch.tensor([0, 3]), torch.tensor([3, 2])
    block = (
        causal_block(starts, lengths) if causal else continuing_block(starts, lengths, *prompts, dtype=torch.bfloat16)
    )
    query = draw(block.queries.numel(), 4, 8, seed=1, dtype=torch.bfloat16)
    key, value = (draw(block.keys.numel(), 2, 8, seed=seed, dtype=torch.bfloat16) for seed in (2, 3))
    calls: list[Tensor] = []

    def counted(*arguments: Any) -> Tensor:
        calls.append(short_attention.short_attention(*arguments))
        return calls[-1]

    monkeypatch.setattr(packed, "short_attention", counted)
    upstream, results = torch.ones(query.shape, dtype=torch.bfloat16), []
    for short in (0, packed.SHORT):
        monkeypatch.setattr(packed, "SHORT", short)
        output = block.attend(query, key, value, 0.4)
        results.append((output, *torch.autograd.grad(output, (query, key, value), upstream)))
    assert len(calls) == 1
    for by_kernel, by_products in zip(*results, strict=True):
        assert_close(by_products.float(), by_kernel.float(), rtol=0.03, atol=0.03)
