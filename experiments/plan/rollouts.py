"""The rollouts of a step on one device, each at its maximum length, and the key-value cache for sampling them.

    shared  =  prompts held · (longest + 1)      own  =  rows · longest completion      keys and values, in tokens

While rows come or go, the old and the new block exist together for a moment, so the larger of the two counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contrastive_reasoning.policies.pass_cost import Lengths, Sizes, packing_pays
from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.learner import FLOAT, Learner

ASSUMED_PROMPT = 512
"""Tokens of a prompt if neither the budget nor an argument sets its length."""
DRAWING = 20
"""Bytes per logit while a token is sampled: logits, probabilities and their cumulative sum in fp64."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """The rollouts of a step over all devices, and the micro-batch of one device."""

    problems: int
    group_size: int
    prompt_tokens: int
    completion_tokens: int
    """Longest completion."""
    mean_tokens: int
    """Average length of a completion, for the work of a step."""
    microbatch_tokens: int
    assumed: bool
    """Whether the prompt length is ``ASSUMED_PROMPT``."""


def rollouts_of(
    config: Any, shape: ModelShape, *, prompt_tokens: int | None = None, completion_tokens: int | None = None
) -> Rollouts:
    """Reads the rollouts from the configuration's GRPO budget and the given lengths."""
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


def even_lengths(groups: int, size: int, *, prompt: int, completion: int) -> Lengths:
    """Returns lengths of ``groups`` groups of ``size`` completions, with one prompt and one completion length."""
    owner = [row // size for row in range(groups * size)]
    return Lengths(prompts=[prompt] * groups, completions=[completion] * len(owner), owner=owner)


def fullest_microbatch(rollouts: Rollouts, shape: ModelShape, *, problems: int) -> Lengths:
    """Returns the lengths of the fullest micro-batch: whole groups, rows of one group, or one row above the budget.

    Completions have their maximum length, or are just short enough for one more group (or row) to fit, whichever
    gives more tokens.

    Args:
        rollouts: the rollouts of the step.
        shape: the shape of the model, which decides whether a prompt is shared.
        problems: the number of problems, and so of groups, on one device.
    """
    budget, size, longest = rollouts.microbatch_tokens, rollouts.group_size, rollouts.completion_tokens

    def tokens(lengths: Lengths) -> int:
        return lengths.packed if packing_pays(lengths, Sizes.of(shape)) else lengths.padded

    def full_rows(groups: int, rows: int, completion: int) -> Lengths:
        return even_lengths(groups, rows, prompt=rollouts.prompt_tokens, completion=completion)

    # counted in groups, each with its prompt, or in rows of one group, which share a prompt
    whole = tokens(full_rows(1, size, longest)) <= budget
    extents = [(count, size) if whole else (1, count) for count in range(1, (problems if whole else size) + 1)]
    count = 1
    while count < len(extents) and tokens(full_rows(*extents[count], longest)) <= budget:
        count += 1
    full = full_rows(*extents[count - 1], longest)
    if count == len(extents):
        return full
    groups, rows = extents[count]
    shorter = (budget - groups * rollouts.prompt_tokens) // (groups * rows)
    if shorter < 1 or tokens(more := full_rows(groups, rows, shorter)) > budget:
        return full
    return max(full, more, key=tokens)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that are sampled at once and the prompts that are held for them."""

    prompts: int
    rows: int
    prompt_tokens: int
    completion_tokens: int
    waiting: bool
    """Whether further rows wait until one of these is finished."""


def first_rows(engine: Any, rollouts: Rollouts, *, prompts: int, group_size: int | None = None) -> Rows:
    """Returns the rows an engine starts with: in order, while prompts and completions fit its token budget."""
    size = group_size or rollouts.group_size
    rows, total = 1, prompts * size
    while rows < total:
        held = -(-(rows + 1) // size)
        if held * rollouts.prompt_tokens + (rows + 1) * rollouts.completion_tokens > engine.max_batch_tokens:
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
    """Returns the bytes of the shared block of the prompts and of the rows' own block."""
    shape = learner.shape
    token = 2 * shape.num_hidden_layers * shape.key_width * (FLOAT if learner.on_cpu else learner.compute_bytes)
    return rows.prompts * (rows.prompt_tokens + 1) * token, rows.rows * rows.completion_tokens * token


def cache_bytes(learner: Learner, rows: Rows) -> int:
    """Returns the peak bytes of keys and values."""
    shared, own = cache_blocks(learner, rows)
    return shared + max(shared, own) + (own if rows.waiting else 0)


def drawing_bytes(learner: Learner, rows: Rows) -> int:
    """Returns the bytes of the next token's logits of every row and the first logits of every prompt."""
    vocabulary = learner.shape.vocab_size
    return vocabulary * (rows.rows * (DRAWING + learner.compute_bytes) + rows.prompts * learner.compute_bytes)


def decoder_copies(learner: Learner) -> int:
    """Returns the bytes of the decoder's matrices cast to the compute dtype for sampling; 0 if no cast is needed.

    Modules with adapters are called as they are, without a copy.
    """
    if not learner.casts:
        return 0
    sizes = learner.shape.matrices()
    bare = sum(rows * columns for name, (rows, columns) in sizes.items() if name not in learner.targets)
    return (learner.shape.num_hidden_layers * bare + learner.shape.vocabulary_matrix) * learner.compute_bytes


def policy_copy(learner: Learner) -> int:
    """Returns the bytes of a sharded policy's copy: linear layers in the compute dtype, embedding and norms as is."""
    shape = learner.shape
    kept = shape.vocabulary_matrix + (2 * shape.num_hidden_layers + 1) * shape.hidden_size
    each = min(learner.weight_bytes, learner.compute_bytes)
    linear = shape.parameters - kept
    if shape.tie_word_embeddings and each != learner.weight_bytes:  # a tied matrix is copied in both dtypes
        linear += shape.vocabulary_matrix
    return kept * learner.weight_bytes + linear * each + learner.adapters * learner.compute_bytes
