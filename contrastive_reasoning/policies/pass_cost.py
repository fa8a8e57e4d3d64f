"""The cost of passes, from lengths and sizes alone: padded or packed, and the arithmetic for their tokens.

Rows are padded to the longest, or packed with every prompt once, whichever is cheaper in a layer:

    cost = tokens · W  +  2 · width · (ATTENTION · area  +  COPY · moved)

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
        return [(self.prompts[place], own) for place, own in zip(self.owner, self.completions, strict=True)]

    @property
    def padded(self) -> int:
        """Tokens through the layers as padded rows, prompts and completions each padded to their longest."""
        longest = max([self.prompts[place] for place in self.owner], default=0) + max(self.completions, default=0)
        return len(self.completions) * longest

    @property
    def unpadded(self) -> int:
        """Tokens through the layers if rows of different lengths never share a pass."""
        return sum(map(sum, self.rows))

    @property
    def packed(self) -> int:
        """Tokens through the layers with every prompt once and no padding."""
        return sum(self.prompts) + sum(self.completions)

    @property
    def even(self) -> bool:
        """Whether padded rows contain no padding."""
        return self.padded == self.unpadded


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a layer: heads × their width, and the weights applied to a token."""

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
        return cls(width=heads * head, weights=weights)

    def cost(self, *, tokens: int, area: float, moved: int) -> float:
        """The cost of a layer. Exact up to 2⁵², so that equal costs compare as equal."""
        return tokens * self.weights + 2 * self.width * (ATTENTION * area + COPY * moved)


def packing_pays(lengths: Lengths, sizes: Sizes) -> bool:
    """Whether the packed pass costs less."""
    return packed_cost(lengths, sizes) < padded_cost(lengths, sizes)


def padded_cost(lengths: Lengths, sizes: Sizes) -> float:
    """The cost of padded rows. Without padding, attention needs no mask and skips later tokens, half of the area."""
    tokens = lengths.padded
    area = tokens**2 / max(len(lengths.completions), 1) / (2 if lengths.even else 1)
    return sizes.cost(tokens=tokens, area=area, moved=0)


def packed_cost(lengths: Lengths, sizes: Sizes) -> float:
    area, moved = 0.0, 0
    for block in prompt_blocks(lengths):
        rows, longest = len(block), max([lengths.prompts[row] for row in block])
        area += rows * longest**2 / 2
        moved += 4 * rows * longest
    for block in completion_blocks(lengths):
        rows = len(block)
        longest = max([lengths.completions[row] for row in block])
        prompt = max([lengths.prompts[lengths.owner[row]] for row in block])
        area += rows * longest * (prompt + longest)
        moved += rows * (4 * longest + 2 * prompt)
    return sizes.cost(tokens=lengths.packed, area=area, moved=moved)


def prompt_blocks(lengths: Lengths) -> list[list[int]]:
    """Prompts that are attended to at once, none padded to more than twice its own area."""
    return _blocks(lengths.prompts, lengths.prompts)


def completion_blocks(lengths: Lengths) -> list[list[int]]:
    """The same for completions, with the keys of their prompt and their own; empty ones are in no block."""
    completions = lengths.completions
    keys = [lengths.prompts[place] + own for place, own in zip(lengths.owner, completions, strict=True)]
    return _blocks(completions, keys)


def _blocks(queries: Sequence[int], keys: Sequence[int]) -> list[list[int]]:
    """Groups rows by decreasing queries × keys; one that would fill less than half its padded area starts a block."""
    areas = [q * k for q, k in zip(queries, keys, strict=True)]
    blocks: list[list[int]] = []
    widest = longest = 0
    for row in sorted([row for row, q in enumerate(queries) if q], key=areas.__getitem__, reverse=True):
        q, k = max(widest, queries[row]), max(longest, keys[row])
        if blocks and 2 * areas[row] >= q * k:
            blocks[-1].append(row)
            widest, longest = q, k
        else:
            blocks.append([row])
            widest, longest = queries[row], keys[row]
    return [sorted(block) for block in blocks]


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
