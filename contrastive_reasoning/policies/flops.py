"""Floating-point operations that reading and learning from tokens takes, by formula: what the arithmetic asks for.

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
    """One pass over completions and their prompts.

    Args:
        prompts: tokens of each prompt.
        completions: tokens of each completion.
        owner: the place in ``prompts`` of each completion's prompt.
        positions: what was computed; None: as many as there are tokens.

    Raises:
        ValueError: where a completion has no owner, or ``positions`` are fewer than the tokens.
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
