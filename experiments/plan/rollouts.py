"""What is drawn and learned from in one step on one device, in rows and tokens, every one at its longest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contrastive_reasoning.policies.flops import Work, work_of
from contrastive_reasoning.policies.pass_cost import Lengths, Sizes, packing_pays
from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.options import Options

ASSUMED_PROMPT = 512
"""Tokens of a prompt where neither the budget nor the person says how long prompts are."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """A step's rollouts, of all devices together, and one device's micro-batch."""

    problems: int
    group_size: int
    prompt_tokens: int
    completion_tokens: int
    """At most."""
    mean_tokens: int
    """Of a completion, for work."""
    microbatch_tokens: int
    assumed: bool
    """Whether the length of prompts is an assumption."""

    def work(self) -> Work:
        """One pass over all of a step's rollouts, each prompt once."""
        rows = self.problems * self.group_size
        owner = [row // self.group_size for row in range(rows)]
        return work_of([self.prompt_tokens] * self.problems, [self.mean_tokens] * rows, owner)


def rollouts_of(config: Any, shape: ModelShape, options: Options) -> Rollouts:
    """From the configuration's budget of GRPO, and what the person says about lengths."""
    budget, limit = config.budget.grpo, int(config.rollout.sampling.max_tokens)
    stated = options.prompt_tokens or budget.max_prompt_tokens
    room = max(shape.max_position_embeddings - limit, 1)
    return Rollouts(
        problems=budget.problems,
        group_size=config.rollout.group_size,
        prompt_tokens=min(stated or ASSUMED_PROMPT, room),
        completion_tokens=limit,
        mean_tokens=min(options.completion_tokens or limit, limit),
        microbatch_tokens=budget.microbatch_tokens,
        assumed=stated is None,
    )


def fullest_microbatch(rollouts: Rollouts, shape: ModelShape, *, problems: int) -> Lengths:
    """The lengths of a micro-batch as full as one can be: whole groups, or rows of one, or a row above the budget.

    Completions are at their longest, or so short that one row more fits and the budget is filled; what is larger.

    Args:
        rollouts: of the step.
        shape: of the model, which decides whether a prompt is shared.
        problems: whose groups there are on one device.
    """
    whole = _of_groups(rollouts, 1)
    if _tokens(whole, shape) <= rollouts.microbatch_tokens:
        groups = 1
        while groups < problems and _tokens(_of_groups(rollouts, groups + 1), shape) <= rollouts.microbatch_tokens:
            groups += 1
        return _of_groups(rollouts, groups)
    rows = 1
    while rows < rollouts.group_size:
        if _tokens(_of_rows(rollouts, rows + 1, rollouts.completion_tokens), shape) > rollouts.microbatch_tokens:
            break
        rows += 1
    return max(_candidates(rollouts, shape, rows), key=lambda lengths: _tokens(lengths, shape))


def _candidates(rollouts: Rollouts, shape: ModelShape, rows: int) -> list[Lengths]:
    longest = _of_rows(rollouts, rows, rollouts.completion_tokens)
    if rows == rollouts.group_size:
        return [longest]
    shorter = (rollouts.microbatch_tokens - rollouts.prompt_tokens) // (rows + 1)
    another = _of_rows(rollouts, rows + 1, max(shorter, 1))
    return [longest, another] if _tokens(another, shape) <= rollouts.microbatch_tokens else [longest]


def _of_groups(rollouts: Rollouts, groups: int) -> Lengths:
    rows = groups * rollouts.group_size
    return Lengths(
        prompts=[rollouts.prompt_tokens] * groups,
        completions=[rollouts.completion_tokens] * rows,
        owner=[row // rollouts.group_size for row in range(rows)],
    )


def _of_rows(rollouts: Rollouts, rows: int, completion: int) -> Lengths:
    return Lengths(prompts=[rollouts.prompt_tokens], completions=[completion] * rows, owner=[0] * rows)


def _tokens(lengths: Lengths, shape: ModelShape) -> int:
    return lengths.packed if packing_pays(lengths, Sizes.of(shape)) else lengths.padded
