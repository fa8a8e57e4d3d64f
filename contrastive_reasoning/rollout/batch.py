"""A batch of rollouts in tokens: problems, completions, the sampler's log-probs. Token-in, token-out."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from contrastive_reasoning.tasks.base import Problem, Step, Task, Verdict, VerifiesTogether

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
    """The divisor of the logits in sampling; 1.0 for greedy rollouts."""
    group_size: int

    def __len__(self) -> int:
        return self.completion_ids.shape[0]


@dataclass(frozen=True, kw_only=True)
class RolloutBatch(RolloutTokens):
    """Rollouts with their problems and their texts."""

    problems: Sequence[Problem]
    """The P problems."""
    pooled: Float[Tensor, "B D"] | None
    """Mean last hidden state of the completion tokens, if a pass computed it."""
    texts: Sequence[str]
    """The B completions as text, without the end token and what follows it."""
    token_spans: Sequence[Sequence[tuple[int, int]]]
    """Per rollout, per completion token: its character span in ``texts`` (empty for special tokens)."""
    finish_reasons: Sequence[FinishReason]
    prefix_values: Sequence[Sequence[float | None]] | None = None
    """Per rollout, after each legal step: the share of correct completions that continue from there. None in place of a
    number: the step's value is the verdict, since the completion ends there or no continuation could be verified. None
    for the batch: prefixes were not valued.
    """

    _parsed: dict[int, tuple[Task, list[list[Step]]]] = field(default_factory=dict, init=False, repr=False)
    """By ``id`` of a task; the task is stored so that its id stays valid."""

    def problem_of(self, row: int) -> Problem:
        return self.problems[row // self.group_size]

    def steps_by(self, task: Task) -> list[list[Step]]:
        """The steps of every completion, legal or not, in order of writing. A task parses a completion once."""
        if id(task) not in self._parsed:
            found = [task.parse_steps(self.problem_of(row), text) for row, text in enumerate(self.texts)]
            self._parsed[id(task)] = task, found
        return self._parsed[id(task)][1]


class Pick(NamedTuple):
    """A group: the one of problem ``problem`` in batch ``batch``."""

    batch: int
    problem: int


def join_groups(batches: Sequence[RolloutBatch], picks: Sequence[Pick], *, pad_token_id: int) -> RolloutBatch:
    """The picked groups in the given order, no wider than the longest prompt and completion among them.

    Raises ValueError for no picks, or batches that were drawn in different ways.
    """
    if not picks:
        raise ValueError("no groups were picked: a rollout batch has at least one")
    for name in ("group_size", "temperature"):
        if len(found := {getattr(batch, name) for batch in batches}) > 1:
            raise ValueError(f"groups of different {name} cannot be joined: {', '.join(map(str, sorted(found)))}")
    for name, what in {"pooled": "pooled states", "prefix_values": "values of prefixes"}.items():
        if len({getattr(batch, name) is None for batch in batches}) > 1:
            raise ValueError(f"groups with {what} cannot be joined with groups without")
    size = batches[0].group_size
    groups = [(batches[b], p, slice(p * size, (p + 1) * size)) for b, p in picks]
    pooled = [batch.pooled[rows] for batch, _, rows in groups if batch.pooled is not None]
    prefix_values = [batch.prefix_values[rows] for batch, _, rows in groups if batch.prefix_values is not None]
    prompt_mask = _below([batch.prompt_mask[p : p + 1] for batch, p, _ in groups], 0, left=True)
    mask = _below([batch.mask[rows] for batch, _, rows in groups], 0)
    start, length = -int(prompt_mask.sum(dim=1).max()), int(mask.sum(dim=1).max())
    prompt_ids = _below([batch.prompt_ids[p : p + 1] for batch, p, _ in groups], pad_token_id, left=True)
    return RolloutBatch(
        problems=[batch.problems[p] for batch, p, _ in groups],
        prompt_ids=prompt_ids[:, start:],
        prompt_mask=prompt_mask[:, start:],
        completion_ids=_below([batch.completion_ids[rows] for batch, _, rows in groups], pad_token_id)[:, :length],
        mask=mask[:, :length],
        old_log_probs=_below([batch.old_log_probs[rows] for batch, _, rows in groups], 0)[:, :length],
        temperature=batches[0].temperature,
        pooled=torch.cat(pooled) if pooled else None,
        texts=[text for batch, _, rows in groups for text in batch.texts[rows]],
        token_spans=[spans for batch, _, rows in groups for spans in batch.token_spans[rows]],
        finish_reasons=[reason for batch, _, rows in groups for reason in batch.finish_reasons[rows]],
        group_size=size,
        prefix_values=[row for part in prefix_values for row in part] or None,
    )


def _below(parts: Sequence[Tensor], fill: int, *, left: bool = False) -> Tensor:
    """Matrices of different width one below the other, padded on the right or on the left."""
    width = max(part.shape[1] for part in parts)
    gaps = [width - part.shape[1] for part in parts]
    return torch.cat(
        [pad(part, (gap, 0) if left else (0, gap), value=fill) for part, gap in zip(parts, gaps, strict=True)]
    )


def verdicts_of(task: Task, rollouts: RolloutBatch) -> list[Verdict]:
    """One verdict per rollout; all at once if the task supports it."""
    return judge(task, [rollouts.problem_of(row) for row in range(len(rollouts))], rollouts.texts)


def judge(task: Task, problems: Sequence[Problem], texts: Sequence[str]) -> list[Verdict]:
    """One verdict per completion, for the problem at the same index.

    Raises ValueError if ``verify_all`` of the task returns another number of verdicts, or no list of them.
    """
    if isinstance(task, VerifiesTogether):
        verdicts = task.verify_all(problems, texts)
        if not isinstance(verdicts, Sequence) or len(verdicts) != len(texts):
            named = f"{type(task).__name__}.verify_all must return a list of {len(texts)} verdicts"
            size = f" of {len(verdicts)}" if isinstance(verdicts, Sized) else ""
            raise ValueError(f"{named}, one for each completion, got {type(verdicts).__name__}{size}")
        return verdicts
    return [task.verify(problem, text) for problem, text in zip(problems, texts, strict=True)]
