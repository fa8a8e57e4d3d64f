"""What samples is never quite what learns: weights for rollouts whose engine has other kernels, or another dtype.

The engine draws from μ; the trainer computes π_old with the same weights. An expectation under μ becomes one under
π_old by the ratio of the two, truncated so that its variance is bounded (Yao et al., "On the Rollout-Training Mismatch
in Modern RL Systems", 2025, as truncated importance sampling; the truncation is Ionides', 2008):

    per token        w_t = min( π_old(y_t) / μ(y_t), C )               low variance; biased, as the prefix is μ's too
    per sequence     w   = min( Π_t π_old(y_t) / μ(y_t), C )           unbiased but for the cap; spreads with length

Constants for the gradient: they multiply the losses of the tokens, beside any ratio of the objective's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives.ratio import masked_log_ratio


@runtime_checkable
class Correction(Protocol):
    """What the losses of the tokens are multiplied by because another engine drew them."""

    def __call__(
        self,
        old_log_probs: Float[Tensor, "B T"],
        engine_log_probs: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "B T"]:
        """The arguments are those of ``token_weights``."""
        ...


@dataclass(frozen=True)
class NoCorrection:
    """1 for every token: for an engine that computes what the trainer computes, up to rounding."""

    def __call__(self, old_log_probs: Tensor, engine_log_probs: Tensor, mask: Tensor) -> Tensor:
        return torch.ones_like(old_log_probs)


@dataclass(frozen=True, kw_only=True)
class TokenCorrection:
    """``token_weights`` with this cap. Raises ValueError for one below 1."""

    cap: float

    def __post_init__(self) -> None:
        _check(self.cap)

    def __call__(self, old_log_probs: Tensor, engine_log_probs: Tensor, mask: Tensor) -> Tensor:
        return token_weights(old_log_probs, engine_log_probs, mask, cap=self.cap)


@dataclass(frozen=True, kw_only=True)
class SequenceCorrection:
    """``sequence_weights`` with this cap. Raises ValueError for one below 1."""

    cap: float

    def __post_init__(self) -> None:
        _check(self.cap)

    def __call__(self, old_log_probs: Tensor, engine_log_probs: Tensor, mask: Tensor) -> Tensor:
        return sequence_weights(old_log_probs, engine_log_probs, mask, cap=self.cap)


def token_weights(
    old_log_probs: Float[Tensor, "B T"],
    engine_log_probs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    cap: float,
) -> Float[Tensor, "B T"]:
    """The weight of each token, at most ``cap``; 1 outside ``mask``.

    Args:
        old_log_probs: log π_old of each token, the trainer's, at the temperature of sampling.
        engine_log_probs: log μ of each token, what the engine says that it drew with.
        mask: the tokens of the completions.
        cap: C, at least 1.

    Raises:
        ValueError: for a ``cap`` below 1.
    """
    return _truncated(masked_log_ratio(old_log_probs.detach(), engine_log_probs.detach(), mask), cap)


def sequence_weights(
    old_log_probs: Float[Tensor, "B T"],
    engine_log_probs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    cap: float,
) -> Float[Tensor, "B T"]:
    """The weight of each completion, at most ``cap``, on each of its tokens; 1 outside ``mask``.

    Arguments and errors are those of ``token_weights``.
    """
    log_ratio = masked_log_ratio(old_log_probs.detach(), engine_log_probs.detach(), mask)
    return torch.where(mask, _truncated(log_ratio.sum(dim=1, keepdim=True), cap), 1.0)


def _truncated(log_ratio: Float[Tensor, "B t"], cap: float) -> Float[Tensor, "B t"]:
    _check(cap)
    # truncated as logarithms, so that no ratio overflows; exp(log C) may round above C
    return log_ratio.clamp(max=math.log(cap)).exp().clamp(max=cap)


def _check(cap: float) -> None:
    if cap < 1:
        raise ValueError(f"cap must be at least 1, got {cap}: below it, rollouts without a mismatch are cut too")
