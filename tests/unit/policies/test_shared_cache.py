"""``SharedCache`` against a plain softmax over the tokens of each row, while rows join and leave."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.policies.shared_cache import ReadPrompt, SharedCache

LAYERS, HEADS, WIDTH = 2, 2, 4


def read(length: int, generator: torch.Generator) -> ReadPrompt:
    keys_values = torch.randn(LAYERS, 2, HEADS, length, WIDTH, generator=generator)
    return ReadPrompt(keys_values, torch.zeros(3))


def plain_attention(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    """Attention of one row: queries (H, d); keys and values (K, n, d) of all tokens that the row attends to."""
    per_key = len(query) // len(keys)
    seen = []
    for head, vector in enumerate(query.double()):
        scores = torch.stack([scaling * key.double() @ vector for key in keys[head // per_key]])
        weights = (scores - scores.max()).exp() / (scores - scores.max()).exp().sum()
        seen.append(sum(w * value.double() for w, value in zip(weights, values[head // per_key], strict=True)))
    return torch.stack(seen)


@pytest.mark.parametrize("queries", [HEADS, 3 * HEADS], ids=["one-query-per-key", "three-queries-per-key"])
@pytest.mark.parametrize("size", [1.0, 30.0], ids=["flat", "sharp"])
def test_each_row_attends_to_its_prompt_and_its_tokens(queries: int, size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    prompts = {number: read(length, generator) for number, length in ((4, 5), (7, 2), (8, 6))}
    cache = SharedCache(limit=6)
    rows: list[tuple[int, list[Tensor]]] = []  # the prompt of each row, and (L, 2, K, d) of each of its tokens

    def step() -> None:
        cache.advance()
        query = size * torch.randn(LAYERS, len(rows), queries, 1, WIDTH, generator=generator)
        token = torch.randn(LAYERS, 2, len(rows), HEADS, 1, WIDTH, generator=generator)
        for row, (_, tokens) in enumerate(rows):
            tokens.append(token[:, :, row, :, 0])
        for layer in range(LAYERS):
            found = cache.attend(layer, query[layer], token[layer, 0], token[layer, 1], scaling=0.5)
            for row, (prompt, tokens) in enumerate(rows):
                own = torch.stack(tokens, dim=3)[layer]
                keys, values = torch.cat([prompts[prompt].keys_values[layer], own], dim=2)
                expected = plain_attention(query[layer, row, :, 0], keys, values, 0.5)
                assert_close(found[row, :, 0].double(), expected, atol=2e-6, rtol=1e-5)

    def join(owners: list[int]) -> None:
        cache.join(owners)
        rows.extend((owner, []) for owner in owners)
        cache.lay_out()

    def leave(gone: list[int]) -> None:
        order = cache.leave(gone)
        assert sorted(order) == [row for row in range(len(rows)) if row not in gone]
        rows[:] = [rows[i] for i in order]
        cache.lay_out()

    cache.hold([], {number: prompts[number] for number in (4, 7)})
    join([4, 4, 4, 7, 7])
    step()
    step()
    leave([0, 3])
    step()
    join([7])  # reuses a free place: the rows are at different tokens now
    step()
    leave([cache.owner.index(7)])
    cache.hold([4, 7], {8: prompts[8]})  # another prompt width
    join([8, 8])
    step()
    leave([row for row, owner in enumerate(cache.owner) if owner == 4])
    cache.hold([7, 8], {})
    cache.lay_out()
    step()
    assert cache.prompts == [7, 8]
