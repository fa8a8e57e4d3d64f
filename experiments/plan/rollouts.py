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

    Completions are at their longest, or so much shorter that one group (or row) more fits: the one with more tokens.

    Args:
        rollouts: of the step.
        shape: of the model, which decides whether a prompt is shared.
        problems: whose groups there are on one device.
    """
    budget, size = rollouts.microbatch_tokens, rollouts.group_size
    whole = _passing(_lengths(rollouts, 1, size, rollouts.completion_tokens), shape) <= budget
    most, unit = (problems, size) if whole else (size, 1)
    # counted in groups, each with its prompt, or in rows of one group, which share it

    def filled(count: int, completion: int) -> Lengths:
        return _lengths(rollouts, count if whole else 1, unit if whole else count, completion)

    def fits(lengths: Lengths) -> bool:
        return _passing(lengths, shape) <= budget

    count = 1
    while count < most and fits(filled(count + 1, rollouts.completion_tokens)):
        count += 1
    longest = filled(count, rollouts.completion_tokens)
    prompts = (count + 1 if whole else 1) * rollouts.prompt_tokens
    shorter = (budget - prompts) // ((count + 1) * unit)
    if count == most or shorter < 1 or not fits(filled(count + 1, shorter)):
        return longest
    return max(longest, filled(count + 1, shorter), key=lambda lengths: _passing(lengths, shape))


def _lengths(rollouts: Rollouts, groups: int, size: int, completion: int) -> Lengths:
    return Lengths(
        prompts=[rollouts.prompt_tokens] * groups,
        completions=[completion] * (groups * size),
        owner=[row // size for row in range(groups * size)],
    )


def _passing(lengths: Lengths, shape: ModelShape) -> int:
    """Tokens through the layers."""
    return lengths.packed if packing_pays(lengths, Sizes.of(shape)) else lengths.padded
