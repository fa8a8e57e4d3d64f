"""The rollouts of a step on one device, every one at its longest, and the cache that drawing them takes.

    shared  =  prompts held · (longest + 1)      own  =  rows · longest completion      keys and values, in tokens

While rows come or go the old and the new block are both there for a moment, so the larger of the two counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contrastive_reasoning.policies.pass_cost import Lengths, Sizes, Work, packing_pays, work_of
from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.learner import FLOAT, Learner

ASSUMED_PROMPT = 512
"""Tokens of a prompt where neither the budget nor an argument limits prompts."""
DRAWING = 20
"""Bytes of one logit while a token is drawn: logits, probabilities and their running sum, which is in fp64."""


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


def rollouts_of(
    config: Any, shape: ModelShape, *, prompt_tokens: int | None, completion_tokens: int | None
) -> Rollouts:
    """From the configuration's budget of GRPO, and the lengths that were given."""
    budget, limit = config.budget.grpo, int(config.rollout.sampling.max_tokens)
    given = prompt_tokens or budget.max_prompt_tokens
    return Rollouts(
        problems=budget.problems,
        group_size=config.rollout.group_size,
        prompt_tokens=min(given or ASSUMED_PROMPT, max(shape.max_position_embeddings - limit, 1)),
        completion_tokens=limit,
        mean_tokens=min(completion_tokens or limit, limit),
        microbatch_tokens=budget.microbatch_tokens,
        assumed=given is None,
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
    whole = _tokens(_lengths(rollouts, 1, size, rollouts.completion_tokens), shape) <= budget
    most, unit = (problems, size) if whole else (size, 1)
    # counted in groups, each with its prompt, or in rows of one group, which share it

    def filled(count: int, completion: int) -> Lengths:
        return _lengths(rollouts, count if whole else 1, unit if whole else count, completion)

    def fits(lengths: Lengths) -> bool:
        return _tokens(lengths, shape) <= budget

    count = 1
    while count < most and fits(filled(count + 1, rollouts.completion_tokens)):
        count += 1
    longest = filled(count, rollouts.completion_tokens)
    prompts = (count + 1 if whole else 1) * rollouts.prompt_tokens
    shorter = (budget - prompts) // ((count + 1) * unit)
    if count == most or shorter < 1 or not fits(filled(count + 1, shorter)):
        return longest
    return max(longest, filled(count + 1, shorter), key=lambda lengths: _tokens(lengths, shape))


def _lengths(rollouts: Rollouts, groups: int, size: int, completion: int) -> Lengths:
    return Lengths(
        prompts=[rollouts.prompt_tokens] * groups,
        completions=[completion] * (groups * size),
        owner=[row // size for row in range(groups * size)],
    )


def _tokens(lengths: Lengths, shape: ModelShape) -> int:
    """Tokens that pass through the layers."""
    return lengths.packed if packing_pays(lengths, Sizes.of(shape)) else lengths.padded


@dataclass(frozen=True, kw_only=True)
class Rows:
    """How many rows are drawn at once, and how many prompts are held for them."""

    prompts: int
    rows: int
    prompt_tokens: int
    completion_tokens: int
    waiting: bool
    """Whether other rows wait until one of these is done."""


def first_rows(engine: Any, rollouts: Rollouts, *, prompts: int, group_size: int | None = None) -> Rows:
    """The rows that an engine begins with: in order, while prompts and completions stay within its token budget."""
    size = group_size or rollouts.group_size
    rows, total = 1, prompts * size
    while rows < total:
        held = -(-(rows + 1) // size)
        tokens = held * rollouts.prompt_tokens + (rows + 1) * rollouts.completion_tokens
        if tokens > engine.max_batch_tokens:
            break
        rows += 1
    return Rows(
        prompts=-(-rows // size),
        rows=rows,
        prompt_tokens=rollouts.prompt_tokens,
        completion_tokens=rollouts.completion_tokens,
        waiting=rows < total,
    )


def cache_blocks(learner: Learner, rows: Rows) -> tuple[int, int]:
    """Bytes of the block of the prompts and of the rows' own."""
    shape = learner.shape
    token = 2 * shape.num_hidden_layers * shape.key_width * (FLOAT if learner.on_cpu else learner.compute_bytes)
    return rows.prompts * (rows.prompt_tokens + 1) * token, rows.rows * rows.completion_tokens * token


def cache_bytes(learner: Learner, rows: Rows) -> int:
    """The most that keys and values take."""
    shared, own = cache_blocks(learner, rows)
    return shared + max(shared, own) + (own if rows.waiting else 0)


def drawing_bytes(learner: Learner, rows: Rows) -> int:
    """The next token's logits of every row, and the first ones of every prompt."""
    vocabulary = learner.shape.vocab_size
    return vocabulary * (rows.rows * (DRAWING + learner.compute_bytes) + rows.prompts * learner.compute_bytes)


def decoder_copies(learner: Learner) -> int:
    """Matrices in the compute dtype while rollouts are drawn: the decoder's own, and those that autocast keeps.

    Modules with adapters are called as they are, and autocast keeps nothing of what is not trained.
    """
    if not learner.casts:
        return 0
    sizes = learner.shape.matrices()
    bare = sum(rows * columns for name, (rows, columns) in sizes.items() if name not in learner.targets)
    matrices = learner.shape.num_hidden_layers * bare + learner.shape.vocabulary_matrix
    return (2 if learner.full else 1) * matrices * learner.compute_bytes
