"""What passes cost, from lengths and sizes alone: padded or packed, and the arithmetic that their tokens ask for.

Rows are padded to the longest, or packed with every prompt once, whichever is less:

    cost = layers · ( tokens · W  +  2 · width · (ATTENTION · area  +  COPY · moved) )

W are the weights that a token meets in a layer, area is Σ queries × keys with their padding, and moved counts the rows
of queries, keys and values that are laid out anew. The unit is one multiplication of a matrix product.

Floating-point operations count what the arithmetic asks for:

    read      2·N + 4·A·k            per token: N weights multiply it, it attends to k tokens, itself included
    learn     4·N + 2·M + 12·A·k     read, and backward to the activations (2·N) and to the M weights that are trained

A is the width of the queries summed over the layers. Trained in full M = N, the usual 6·N; by LoRA nearly 4·N. A
product of (m,n) and (n,k) matrices counts 2·m·n·k; norms, softmax, rotations and the lookup of embeddings count
nothing. Nor does what is computed twice or for nothing: padding, a prompt once more for each completion, a forward
pass repeated in backward. So a utilisation from these rises when waste goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

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


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of some matrices, and how many of them are trained."""

    total: int
    trained: int


@dataclass(frozen=True, kw_only=True)
class DecoderSize:
    """What of a decoder the formulas ask for."""

    layers: Weights
    """N and M of every token; adapters are weights like others."""
    projection: Weights
    """N and M of the tokens that are projected to the vocabulary."""
    attention: int
    """A = layers · heads · head width."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What passes through a policy. Works add up; a second pass over the same tokens is as much work again."""

    tokens: int
    """Through the layers: true tokens, a prompt once for all completions that are computed with it."""
    projected: int
    """Tokens of completions, each of which is predicted from the vocabulary."""
    attended: int
    """Pairs of a token and one that it attends to, itself included."""
    positions: int
    """What was computed for it: the tokens, their padding, and prompts computed again."""

    def __add__(self, other: Work) -> Work:
        return Work(
            tokens=self.tokens + other.tokens,
            projected=self.projected + other.projected,
            attended=self.attended + other.attended,
            positions=self.positions + other.positions,
        )

    @property
    def padding_share(self) -> float:
        """The share of positions that need not have been computed; 0 without any."""
        return 1 - self.tokens / self.positions if self.positions else 0.0


NO_WORK = Work(tokens=0, projected=0, attended=0, positions=0)


def work_of(
    prompts: Sequence[int], completions: Sequence[int], owner: Sequence[int], *, positions: int | None = None
) -> Work:
    """One pass over completions and their prompts, by their lengths.

    ``owner`` is the place in ``prompts`` of each completion's prompt; ``positions`` None: as many as there are tokens.

    Raises ValueError where a completion has no owner, or ``positions`` are fewer than the tokens.
    """
    if len(completions) != len(owner):
        raise ValueError(f"{len(completions)} completions have {len(owner)} owners")
    tokens = sum(prompts) + sum(completions)
    if positions is not None and positions < tokens:
        raise ValueError(f"{positions} positions cannot hold {tokens} tokens")
    # a prompt and a completion by themselves are triangles, the completion against its prompt a rectangle
    own = sum(length * (length + 1) // 2 for length in (*prompts, *completions))
    across = sum(length * prompts[place] for length, place in zip(completions, owner, strict=True))
    return Work(
        tokens=tokens,
        projected=sum(completions),
        attended=own + across,
        positions=tokens if positions is None else positions,
    )


def reading_flops(size: DecoderSize, work: Work) -> int:
    """Of forward passes, as for generation."""
    return 2 * (size.layers.total * work.tokens + size.projection.total * work.projected) + (
        4 * size.attention * work.attended
    )


def learning_flops(size: DecoderSize, work: Work) -> int:
    """Of forward and backward passes."""
    layers = 4 * size.layers.total + 2 * size.layers.trained
    projection = 4 * size.projection.total + 2 * size.projection.trained
    return layers * work.tokens + projection * work.projected + 12 * size.attention * work.attended


def decoder_size(model: nn.Module) -> DecoderSize:
    """The size of a Hugging Face decoder, with adapters or without; its matrices are ``nn.Linear``, none is skipped.

    A mixture of experts keeps its experts otherwise and is not counted rightly.
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
    # not numel(), which is 0 where ZeRO-3 has given the weight away
    counts = [(linear.in_features * linear.out_features, linear.weight.requires_grad) for linear in linears]
    return Weights(total=sum(count for count, _ in counts), trained=sum(count for count, trained in counts if trained))
