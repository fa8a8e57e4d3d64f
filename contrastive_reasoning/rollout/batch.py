"""What the policy wrote, in tokens: problems, completions, the sampler's log-probs. Token-in, token-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.tasks.base import Problem

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class RolloutTokens:
    """B = P·G rollouts as tokens, prompt-major: rows p·G … p·G+G−1 are the group of prompt p."""

    prompt_ids: Int[Tensor, "P S"]
    """Prompts, left-padded with the pad token."""
    prompt_mask: Bool[Tensor, "P S"]
    completion_ids: Int[Tensor, "B T"]
    """Completions, right-padded; an end token that was sampled is part of its completion."""
    mask: Bool[Tensor, "B T"]
    """True on the tokens of the completion, the end token included."""
    old_log_probs: Float[Tensor, "B T"]
    """log π_old of each sampled token under the softmax at ``temperature`` (before top-k and top-p); 0 where masked."""
    temperature: float
    """What the logits were divided by when sampling; 1.0 for greedy rollouts."""
    group_size: int

    def __len__(self) -> int:
        return self.completion_ids.shape[0]


@dataclass(frozen=True, kw_only=True)
class RolloutBatch(RolloutTokens):
    """Rollouts with the problems they answer and what they say."""

    problems: Sequence[Problem]
    """The P problems."""
    pooled: Float[Tensor, "B D"] | None
    """Mean last hidden state of the completion tokens where a pass computed it."""
    texts: Sequence[str]
    """The B completions as text, the end token and what follows it removed."""
    token_spans: Sequence[Sequence[tuple[int, int]]]
    """Per rollout, per completion token: its character span in ``texts`` (empty for special tokens)."""
    finish_reasons: Sequence[FinishReason]
    prefix_values: Sequence[Sequence[float | None]] | None = None
    """Per rollout, after each legal step: how often completions that go on from there are correct. None in place of a
    number where its verdict is its value, as the completion ends there or no continuation could be judged; None for
    the batch: nobody asked."""

    def problem_of(self, row: int) -> Problem:
        return self.problems[row // self.group_size]
