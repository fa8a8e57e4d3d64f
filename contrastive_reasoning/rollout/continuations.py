"""Prefixes of completions, and the success of their continuations by the policy (VinePPO, arXiv:2410.01679).

completion    21+16=37;37-17=20;20+26=46⏎     the tokens that were drawn, never text encoded again
prefixes      ───────┤                        continue from here
              ────────────────┤               and from here
              ─────────────────────────┤      nothing follows but the end: the verdict is the value
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.rollout.requests import spelling
from contrastive_reasoning.rollout.spans import text_of
from contrastive_reasoning.tasks.base import Problem, Step, Task


class Prefix(NamedTuple):
    """The beginning of a completion. Equal prefixes get the same draws."""

    problem: str
    """The problem's id."""
    tokens: tuple[int, ...]


def step_prefixes(task: Task, rollouts: RolloutBatch) -> list[list[Prefix | None]]:
    """Per rollout the prefix that ends with each legal step; None if only white space follows."""
    found = []
    for row, steps in enumerate(rollouts.steps_by(task)):
        problem = rollouts.problem_of(row).id
        lengths = [_open_length(rollouts, row, step) for step in steps if step.legal]
        ids = rollouts.completion_ids[row].tolist()
        found.append([None if n is None else Prefix(problem, tuple(ids[:n])) for n in lengths])
    return found


def _open_length(rollouts: RolloutBatch, row: int, step: Step) -> int | None:
    """Number of tokens of a rollout that begin before the end of a step; None if only white space follows."""
    spans = rollouts.token_spans[row]
    length = bisect_left(spans, step.end, key=lambda span: span[0])
    ended = length == len(spans) or not rollouts.texts[row][step.end :].strip()
    return None if ended else length


def distinct(prefixes: Sequence[Sequence[Prefix | None]]) -> list[Prefix]:
    """Each prefix once, in order of writing."""
    return list(dict.fromkeys(prefix for row in prefixes for prefix in row if prefix is not None))


def success_rates(
    task: Task, policy: CausalLMPolicy, prefixes: Sequence[Prefix], continued: RolloutBatch
) -> dict[Prefix, float | None]:
    """For each of P prefixes the share of correct completions among those that could be verified; None if there are
    none.

    ``continued`` are the G continuations of each, prompt-major; prefix and continuation are verified together.
    """
    whole = replace(continued, texts=whole_texts(policy, prefixes, continued))
    verdicts, size = verdicts_of(task, whole), continued.group_size
    rates: dict[Prefix, float | None] = {}
    for p, prefix in enumerate(prefixes):
        judged = [verdict.correct for verdict in verdicts[p * size : (p + 1) * size] if verdict.judged]
        rates[prefix] = sum(judged) / len(judged) if judged else None
    return rates


def whole_texts(policy: CausalLMPolicy, prefixes: Sequence[Prefix], continued: RolloutBatch) -> list[str]:
    """Prefix and continuation as one text; a character may begin in one and end in the other."""
    table = spelling(policy)
    return [
        text_of(table, [*prefixes[row // continued.group_size].tokens, *ids[:length]])
        for row, (ids, length) in enumerate(
            zip(continued.completion_ids.tolist(), continued.mask.sum(1).tolist(), strict=True)
        )
    ]


def problems_of(prefixes: Sequence[Prefix], rollouts: RolloutBatch) -> list[Problem]:
    """The problem of each prefix."""
    by_id = {problem.id: problem for problem in rollouts.problems}
    return [by_id[prefix.problem] for prefix in prefixes]
