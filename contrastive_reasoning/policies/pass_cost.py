"""The cost of passes, from lengths and sizes alone: padded or packed, and the arithmetic for their tokens.

Rows are padded to the longest, or packed with every prompt once, whichever is cheaper:

    cost = layers · ( tokens · W  +  2 · width · (ATTENTION · area  +  COPY · moved) )

W is the number of weights applied to a token in a layer, area is Σ queries × keys with their padding, and moved counts
the rows of queries, keys and values that are copied. The unit is one multiplication of a matrix product.

Floating-point operations count the arithmetic that is necessary:

    read      2·N + 4·A·k            per token: N weights multiply it, it attends to k tokens, itself included
    learn     4·N + 2·M + 12·A·k     read, and backward to the activations (2·N) and to the M weights that are trained

A is the width of the queries summed over the layers. If all weights are trained, M = N gives the usual 6·N; LoRA nearly
4·N. A product of (m,n) and (n,k) matrices counts 2·m·n·k; norms, softmax, rotations and the lookup of embeddings count
nothing. Redundant work does not count either: padding, a prompt computed again for each completion, a forward pass
repeated in backward. A utilisation from these numbers therefore rises when waste is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

ATTENTION = 3.0
"""Cost of one multiplication in attention, relative to one in a large matrix product; 2 to 5 on CPU."""
COPY = 8.0
"""Cost of moving one element, forward and backward; between 4 and 20 on CPU."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens of the p prompts and the b completions of a pass, and the index of each completion's prompt."""

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
    def unpadded(self) -> int:
        """Tokens through the layers as rows that are passed with rows of their own length alone."""
        return sum(map(sum, self.rows))

    @property
    def packed(self) -> int:
        """Tokens through the layers with every prompt once and no padding."""
        return sum(self.prompts) + sum(self.completions)

    @property
    def even(self) -> bool:
        """Whether padded rows contain no padding."""
        return all(sum(row) == self._width for row in self.rows)

    @property
    def _width(self) -> int:
        used = [self.prompts[p] for p in self.owner]
        return max(used, default=0) + max(self.completions, default=0)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a model: layers, heads × their width, and the weights applied to a token in a layer."""

    layers: int
    width: int
    weights: int

    @classmethod
    def of(cls, config: Any) -> Sizes:
        """Sizes from the configuration of a ``transformers`` model."""
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
    """The cost of padded rows. Without padding, attention needs no mask and skips later tokens, half of the area."""
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
    """The same for completions, with the keys of their prompt and their own; empty ones are in no block."""
    return _blocks([(length, prompt + length) for prompt, length in lengths.rows])


def _blocks(areas: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Groups rows by decreasing queries × keys; one that would fill less than half its padded area starts a block."""
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


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The number of weights of some matrices, and how many of them are trained."""

    total: int
    trained: int


@dataclass(frozen=True, kw_only=True)
class DecoderSize:
    """The sizes of a decoder that the formulas need."""

    layers: Weights
    """N and M of every token; adapters are weights like others."""
    projection: Weights
    """N and M of the tokens that are projected to the vocabulary."""
    attention: int
    """A = layers · heads · head width."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What passes through a policy. Works can be added; a second pass over the same tokens counts again."""

    tokens: int
    """True tokens through the layers; a prompt counts once for all completions computed with it."""
    projected: int
    """Tokens of completions, each of which is predicted from the vocabulary."""
    attended: int
    """Pairs of a token and one that it attends to, itself included."""
    positions: int
    """Computed positions: the tokens, their padding, and prompts computed again."""

    def __add__(self, other: Work) -> Work:
        return Work(
            tokens=self.tokens + other.tokens,
            projected=self.projected + other.projected,
            attended=self.attended + other.attended,
            positions=self.positions + other.positions,
        )

    @property
    def padding_share(self) -> float:
        """The share of positions that were unnecessary; 0 without any."""
        return 1 - self.tokens / self.positions if self.positions else 0.0


NO_WORK = Work(tokens=0, projected=0, attended=0, positions=0)


def work_of(
    prompts: Sequence[int], completions: Sequence[int], owner: Sequence[int], *, positions: int | None = None
) -> Work:
    """The work of one pass over completions and their prompts, by their lengths.

    ``owner`` is the index in ``prompts`` of each completion's prompt. ``positions`` None: as many as there are tokens.

    Raises ValueError if the completions and owners differ in number, or if there are fewer ``positions`` than tokens.
    """
    if len(completions) != len(owner):
        raise ValueError(f"{len(completions)} completions have {len(owner)} owners")
    tokens = sum(prompts) + sum(completions)
    if positions is not None and positions < tokens:
        raise ValueError(f"{positions} positions cannot hold {tokens} tokens")
    # a prompt or a completion by itself is a triangle, a completion against its prompt a rectangle
    own = sum(length * (length + 1) // 2 for length in (*prompts, *completions))
    across = sum(length * prompts[place] for length, place in zip(completions, owner, strict=True))
    return Work(
        tokens=tokens,
        projected=sum(completions),
        attended=own + across,
        positions=tokens if positions is None else positions,
    )


def reading_flops(size: DecoderSize, work: Work) -> int:
    """Operations of forward passes, as for generation."""
    return 2 * (size.layers.total * work.tokens + size.projection.total * work.projected) + (
        4 * size.attention * work.attended
    )


def learning_flops(size: DecoderSize, work: Work) -> int:
    """Operations of forward and backward passes."""
    layers = 4 * size.layers.total + 2 * size.layers.trained
    projection = 4 * size.projection.total + 2 * size.projection.trained
    return layers * work.tokens + projection * work.projected + 12 * size.attention * work.attended


def decoder_size(model: nn.Module) -> DecoderSize:
    """The size of a Hugging Face decoder, with or without adapters; its matrices are ``nn.Linear``, none is skipped.

    A mixture of experts stores its experts in another way and is counted incorrectly.
    """
    found: Any = model
    head, config = found.get_output_embeddings(), found.config
    linears = [module for module in model.modules() if isinstance(module, nn.Linear) and module is not head]
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return DecoderSize(
        layers=_weights(linears),
        projection=_weights([head]),
        attention=config.num_hidden_layers * config.num_attention_heads * width,
    )


def _weights(linears: Iterable[nn.Linear]) -> Weights:
    # not numel(), which is 0 where ZeRO-3 has released the weight
    counts = [(linear.in_features * linear.out_features, linear.weight.requires_grad) for linear in linears]
    return Weights(total=sum(count for count, _ in counts), trained=sum(count for count, trained in counts if trained))
