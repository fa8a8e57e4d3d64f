from __future__ import annotations

import pytest
from transformers import LlamaConfig

from contrastive_reasoning.policies.pass_cost import (
    Lengths,
    Sizes,
    completion_blocks,
    packing_pays,
)

SIZES = Sizes(width=192, weights=442_368)


def groups(prompts: list[int], completions: list[int]) -> Lengths:
    """Lengths with equally many completions of each prompt, prompt-major."""
    size = len(completions) // len(prompts)
    return Lengths(prompts=prompts, completions=completions, owner=[row // size for row in range(len(completions))])


@pytest.mark.parametrize(
    ("lengths", "packs"),
    [
        (groups([1800] * 4, [128] * 32), True),
        (groups([60] * 8, [32 + 60 * (i % 8) for i in range(64)]), True),
        (groups([100] * 6, [100] * 6), False),
        (groups([100], [100]), False),
        (groups([8], [100]), False),
        (groups([10, 900, 30], [100, 20, 600]), True),
    ],
    ids=["long shared prompts", "uneven", "a prompt each, no padding", "one row", "a short prompt", "a prompt each"],
)
def test_packing_pays_selects_cheaper_pass(lengths: Lengths, packs: bool) -> None:
    assert packing_pays(lengths, SIZES) is packs


def test_lengths_count_packed_and_padded_tokens() -> None:
    lengths = groups([3, 5], [2, 4, 1, 1])
    assert lengths.packed == 3 + 5 + 2 + 4 + 1 + 1
    assert lengths.padded == 4 * (5 + 4)
    assert not lengths.even
    assert groups([3, 3], [2, 2]).even


def test_completion_blocks_rows_fill_at_least_half_of_padded_area() -> None:
    lengths = groups([10] * 4, [1, 2, 3, 500, 0, 30, 33, 480, 7, 400, 90, 6, 5, 5, 100, 110])
    blocks = completion_blocks(lengths)
    assert sorted(row for block in blocks for row in block) == [i for i in range(16) if i != 4]
    for block in blocks:
        sizes = [lengths.completions[row] for row in block]
        assert all(2 * size * (10 + size) >= max(sizes) * (10 + max(sizes)) for size in sizes)


def test_sizes_of_model_config() -> None:
    config = LlamaConfig(
        hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=6
    )
    assert Sizes.of(config) == SIZES
    grouped = LlamaConfig(
        hidden_size=64, intermediate_size=100, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    assert Sizes.of(grouped) == Sizes(width=64, weights=64 * (64 + 2 * 32 + 64) + 3 * 64 * 100)
