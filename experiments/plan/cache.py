"""Keys and values of the rollouts, and what else drawing them holds.

    shared  =  prompts held · (longest + 1)      own  =  rows · longest completion      in tokens; see rollout.shared

While rows come or go the old and the new block are both there for a moment, so the larger of the two counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.plan.learner import Learner

FLOAT = 4
DRAWING = 20
"""Bytes of one logit while a token is drawn: logits, probabilities and their running sum, which is in fp64."""


@dataclass(frozen=True, kw_only=True)
class Seating:
    """How many rows write at once, and how many prompts are held for them."""

    prompts: int
    rows: int
    prompt_tokens: int
    completion_tokens: int
    waiting: bool
    """Whether other rows wait for a seat."""


def seating(*, prompts: int, group_size: int, prompt_tokens: int, completion_tokens: int, budget: int) -> Seating:
    """The rows that sit down first: in order, while prompts held and completions reserved stay within the budget."""
    rows, total = 1, prompts * group_size
    while rows < total:
        held = -(-(rows + 1) // group_size)
        if held * prompt_tokens + (rows + 1) * completion_tokens > budget:
            break
        rows += 1
    return Seating(
        prompts=-(-rows // group_size),
        rows=rows,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        waiting=rows < total,
    )


def cache_blocks(learner: Learner, seats: Seating) -> tuple[int, int]:
    """Bytes of the block of the prompts and of the rows' own."""
    shape = learner.shape
    token = 2 * shape.num_hidden_layers * shape.key_width * (FLOAT if learner.on_cpu else learner.compute_bytes)
    return (
        seats.prompts * (seats.prompt_tokens + 1) * token,
        seats.rows * seats.completion_tokens * token,
    )


def cache_bytes(learner: Learner, seats: Seating) -> int:
    """The most that keys and values take."""
    shared, own = cache_blocks(learner, seats)
    if not seats.waiting:
        return shared + max(shared, own)
    return shared + own + max(shared, own)


def drawing_bytes(learner: Learner, seats: Seating) -> int:
    """The next token's logits of every row, and the first ones of every prompt."""
    vocabulary = learner.shape.vocab_size
    return vocabulary * (seats.rows * (DRAWING + learner.compute_bytes) + seats.prompts * learner.compute_bytes)


def decoder_copies(learner: Learner) -> int:
    """Matrices in the compute dtype while rollouts are drawn: the decoder's own, and those that autocast keeps.

    Modules with adapters are called as they are, and autocast keeps nothing of what is not trained.
    """
    if not learner.casts:
        return 0
    copies = 2 if learner.full else 1
    bare: Sequence[str] = [name for name in learner.shape.matrices() if name not in learner.targets]
    sizes = learner.shape.matrices()
    layers = learner.shape.num_hidden_layers * sum(sizes[name][0] * sizes[name][1] for name in bare)
    return copies * (layers + learner.shape.vocabulary_matrix) * learner.compute_bytes
