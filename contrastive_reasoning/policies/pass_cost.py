"""What a pass costs, from lengths alone: rows padded to the longest, or packed with every prompt once.

    cost = layers · ( tokens · W  +  2 · width · (ATTENTION · area  +  COPY · moved) )

W are the weights that a token meets in a layer, area is Σ queries × keys with their padding, and moved counts the rows
of queries, keys and values that are laid out anew. The unit is one multiplication of a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ATTENTION = 3.0
"""One multiplication in attention over one in a large matrix product; 2 to 5 on CPU."""
COPY = 8.0
"""One element moved, forth and in backward; between 4 and 20 on CPU."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens of the p prompts and the b completions of a pass, and whose prompt each completion continues."""

    prompts: Sequence[int]
    completions: Sequence[int]
    owner: Sequence[int]

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Prompt and completion tokens of each completion."""
        return [(self.prompts[p], length) for p, length in zip(self.owner, self.completions, strict=True)]

    @property
    def padded(self) -> int:
        """Tokens through the layers as padded rows, prompts and completions each padded to their longest."""
        return len(self.completions) * self._width

    @property
    def packed(self) -> int:
        """Tokens through the layers with every prompt once and no padding."""
        return sum(self.prompts) + sum(self.completions)

    @property
    def even(self) -> bool:
        """Whether padded rows hold no padding."""
        return all(sum(row) == self._width for row in self.rows)

    @property
    def _width(self) -> int:
        used = [self.prompts[p] for p in self.owner]
        return max(used, default=0) + max(self.completions, default=0)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a model: layers, heads × their width, and the weights a token meets in a layer."""

    layers: int
    width: int
    weights: int

    @classmethod
    def of(cls, config: Any) -> Sizes:
        """From the configuration of a ``transformers`` model."""
        heads = config.num_attention_heads
        head = getattr(config, "head_dim", None) or config.hidden_size // heads
        shared = getattr(config, "num_key_value_heads", None) or heads
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        weights = config.hidden_size * (2 * head * (heads + shared) + 3 * inner)
        return cls(layers=config.num_hidden_layers, width=heads * head, weights=weights)


def packing_pays(lengths: Lengths, sizes: Sizes) -> bool:
    """Whether the packed pass costs less."""
    return packed_cost(lengths, sizes) < padded_cost(lengths, sizes)


def padded_cost(lengths: Lengths, sizes: Sizes) -> float:
    """Without padding attention needs no mask and skips what lies ahead, half of the area."""
    rows, tokens = len(lengths.completions), lengths.padded
    area = tokens**2 / max(rows, 1) / (2 if lengths.even else 1)
    return _cost(sizes, tokens, area, moved=0)


def packed_cost(lengths: Lengths, sizes: Sizes) -> float:
    prompts, completions = prompt_blocks(lengths), completion_blocks(lengths)
    keys = [(block, _longest(lengths.rows, block)) for block in completions]
    area = sum(len(block) * max(lengths.prompts[p] for p in block) ** 2 for block in prompts) / 2
    area += sum(len(block) * t * (s + t) for block, (s, t) in keys)
    moved = 4 * sum(len(block) * max(lengths.prompts[p] for p in block) for block in prompts)
    moved += sum(len(block) * (4 * t + 2 * s) for block, (s, t) in keys)
    return _cost(sizes, lengths.packed, area, moved)


def prompt_blocks(lengths: Lengths) -> list[list[int]]:
    """Prompts that are attended to at once, none padded to more than twice its own area."""
    return _blocks([(length, length) for length in lengths.prompts])


def completion_blocks(lengths: Lengths) -> list[list[int]]:
    """The same of completions, whose keys are those of their prompt and their own; empty ones are in none."""
    return _blocks([(length, prompt + length) for prompt, length in lengths.rows])


def _blocks(areas: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Rows by falling queries × keys; one that would fill less than half of its padded area begins a new block."""
    blocks: list[list[int]] = []
    widest = (0, 0)
    for row in sorted((i for i, (queries, _) in enumerate(areas) if queries), key=lambda i: (-_area(areas[i]), i)):
        wider = _wider(widest, areas[row])
        if blocks and 2 * _area(areas[row]) >= _area(wider):
            blocks[-1].append(row)
            widest = wider
        else:
            blocks.append([row])
            widest = areas[row]
    return [sorted(block) for block in blocks]


def _cost(sizes: Sizes, tokens: int, area: float, moved: int) -> float:
    return sizes.layers * (tokens * sizes.weights + 2 * sizes.width * (ATTENTION * area + COPY * moved))


def _longest(rows: Sequence[tuple[int, int]], block: Iterable[int]) -> tuple[int, int]:
    longest = (0, 0)
    for row in block:
        longest = _wider(longest, rows[row])
    return longest


def _wider(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return max(first[0], second[0]), max(first[1], second[1])


def _area(extent: tuple[int, int]) -> int:
    return extent[0] * extent[1]
