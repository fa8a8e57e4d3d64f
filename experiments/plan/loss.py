"""The workspace of the loss: chunks of tokens projected to the vocabulary, forward and backward.

Four tensors of (chunk, V) in fp32 are alive at once: logits, logits over the temperature, and two on the way back. With
more than one chunk the gradients of the projection add up beside them: the sum so far, the newest, and their sum.
"""

from __future__ import annotations

from contrastive_reasoning.policies.log_probs import KEPT
from experiments.plan.learner import Learner

FLOAT = 4
ALIVE = 4
"""Tensors of (chunk, V) in fp32 at most; one of them is the logits themselves."""


def loss_workspace(learner: Learner, tokens: int) -> int:
    """Bytes that the log-probs of so many completion tokens take at most, forward and backward."""
    shape, chunk = learner.shape, min(learner.chunk, tokens)
    logits = chunk * shape.vocab_size * FLOAT
    if tokens * shape.vocab_size <= KEPT:  # they are all kept, and one chunk at a time is passed back
        logits = tokens * shape.vocab_size * FLOAT + (ALIVE - 1) * logits
    else:
        logits *= ALIVE
    states = tokens * shape.hidden_size * learner.weight_bytes
    cast = shape.vocabulary_matrix * learner.compute_bytes if learner.casts else 0
    gradient = shape.vocabulary_matrix * min(learner.weight_bytes, learner.compute_bytes)
    if not learner.full:
        return logits + cast + states
    if tokens <= chunk:
        return max(logits + cast, 2 * gradient) + states
    own = chunk * shape.hidden_size * learner.weight_bytes
    return max(logits + cast + gradient, 3 * gradient + own) + states


def scoring_workspace(learner: Learner, tokens: int) -> int:
    """The same without gradients: one chunk of logits, in the compute dtype and twice in fp32."""
    shape = learner.shape
    chunk = min(learner.chunk, tokens)
    cast = shape.vocabulary_matrix * learner.compute_bytes if learner.casts else 0
    return (
        chunk * shape.vocab_size * (2 * FLOAT + (learner.compute_bytes if learner.compute_bytes != FLOAT else 0)) + cast
    )
