"""The workspace of the loss: chunks of tokens projected to the vocabulary, forward and backward.

Four tensors of (chunk, V) in fp32 are alive at once: logits, logits over the temperature, and two on the way back. With
more than one chunk the gradients of the projection add up beside them: the sum so far, the newest, and their sum. Where
all logits together are few, those of the chunks that have not been passed back yet are kept too.
"""

from __future__ import annotations

from contrastive_reasoning.policies.log_probs import KEPT
from experiments.plan.learner import Learner

FLOAT = 4
ALIVE = 4
"""Tensors of (chunk, V) in fp32 at most; one of them is the logits themselves."""


def loss_workspace(learner: Learner, tokens: int) -> int:
    """Bytes that the log-probs of so many completion tokens take at most, forward and backward."""
    shape = learner.shape
    sizes = [min(learner.chunk, tokens - start) for start in range(0, tokens, learner.chunk)]
    keeps = tokens * shape.vocab_size <= KEPT
    gradient = shape.vocabulary_matrix * min(learner.weight_bytes, learner.compute_bytes) if learner.full else 0
    most = 0
    for index, size in enumerate(sizes):  # backward takes the last chunk first
        logits = size * shape.vocab_size * FLOAT
        waiting = sum(sizes[:index]) * shape.vocab_size * FLOAT if keeps else 0
        # autocast casts a trained matrix once; of a frozen one every chunk that is kept has its own copy
        copies = index + 1 if keeps and not learner.full else 1
        first = index == len(sizes) - 1
        summed = 0 if first else gradient
        own = size * shape.hidden_size * learner.weight_bytes
        passing = ALIVE * logits + copies * _cast(learner) + summed
        adding = gradient + logits if first else 3 * gradient + own
        most = max(most, waiting + max(passing, adding))
    return most + tokens * shape.hidden_size * learner.weight_bytes


def scoring_workspace(learner: Learner, tokens: int) -> int:
    """The same without gradients: one chunk of logits, in the compute dtype and twice in fp32; before, the matrix."""
    logits = min(learner.chunk, tokens) * learner.shape.vocab_size
    drawn = logits * learner.compute_bytes
    return max(_cast(learner) + drawn, 2 * logits * FLOAT + (drawn if learner.compute_bytes != FLOAT else 0))


def _cast(learner: Learner) -> int:
    """The projection in the compute dtype, where it is kept in another one."""
    return learner.shape.vocabulary_matrix * learner.compute_bytes if learner.casts else 0
