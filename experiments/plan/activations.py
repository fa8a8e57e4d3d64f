"""Formulas for the activations that a micro-batch keeps for its backward pass, and for the workspace of that pass.

Numbers kept per token by a decoder layer (D hidden, I intermediate, Q and K the widths of queries and keys):

    norms         2·D in fp32, and 2·D more if their weights are trained
    inputs        of the trained linear layers: D shared by q, k and v, D shared by gate and up, Q of o, I of down;
                  a layer whose input must be cast keeps its own copy
    product       3·I: gate, silu(gate), up
    attention     Q for queries, Q for outputs; keys and values of every block, repeated for the heads that share them

With checkpointing each layer keeps only its input, and the above exists for one layer at a time. The attention kernels
keep no scores. So only the mask of a packed block, which all layers share, is quadratic in the length. The formulas
follow what torch's allocator counts in ``CausalLMPolicy.log_probs``, forward and backward.

The loss projects chunks of tokens to the vocabulary. In the backward pass the gradient of a chunk overwrites its
logits, a block of them in fp32 at a time. The projection then has two gradients: of the chunk, cast to the dtype of the
weights, and the sum of the chunks before it.
"""

from __future__ import annotations

from typing import NamedTuple

from contrastive_reasoning.policies.log_probs import block_rows
from contrastive_reasoning.policies.pass_cost import (
    Lengths,
    Sizes,
    completion_blocks,
    packing_pays,
    prompt_blocks,
)
from contrastive_reasoning.policies.shape import LINEAR_LAYERS
from experiments.plan.learner import FLOAT, Learner

INDICES = 64
"""Bytes per token of ids, positions and indices in a packed pass."""
NORM_BACKWARD = 4.5
"""fp32 tensors of D numbers per token that are alive in the backward pass of a norm."""
LAYING_OUT = 1.3
"""Peak bytes of attention while it repeats keys for the heads that share them, relative to the bytes it keeps."""


class Activations(NamedTuple):
    """Bytes on one device."""

    kept: int
    """Kept from the forward to the backward pass, copies of weights in the compute dtype included."""
    forward: int
    """Most bytes beside ``kept`` during the forward pass."""
    backward: int
    """Most bytes beside ``kept`` during the backward pass through the decoder layers."""


def activations(learner: Learner, lengths: Lengths) -> Activations:
    """Returns the activations of a forward and backward pass over rows of these lengths."""
    shape, weight, compute = learner.shape, learner.weight_bytes, learner.compute_bytes
    hidden, layers = shape.hidden_size, shape.num_hidden_layers
    tokens, attention, mask = _attention(learner, lengths)
    casts = shape.layer_weights * compute if learner.casts else 0
    layer = tokens * _token_bytes(learner) + attention + casts
    # before the first layer and after the last: rotation, final norm, states to project
    final = hidden * (FLOAT + weight * (2 if learner.full else 1))
    ends = tokens * (final + 2 * shape.head_dim * weight + INDICES) + sum(lengths.completions) * hidden * weight + mask
    # the gradient of the projection: that of a tied matrix stays until the embedding's is there, and the two are added
    # after everything else is freed
    matrix = shape.vocabulary_matrix * weight if learner.full else 0
    tied = shape.tie_word_embeddings
    waiting = matrix if tied else 0
    step = _backward_step(learner, tokens)
    if not learner.checkpointing:
        # a frozen embedding gets no gradient, so the first norm keeps nothing
        first = 0 if learner.full else tokens * hidden * FLOAT
        norm = int(NORM_BACKWARD * tokens * hidden * FLOAT)
        return Activations(kept=layers * layer + ends - first, forward=0, backward=waiting + max(step, norm))
    # autocast keeps the copies of trained weights until the end of the pass
    cached = layers * casts if learner.full else casts
    passing = tokens * 4 * shape.intermediate_size * compute
    own_input = tokens * hidden * FLOAT if weight == FLOAT else 0  # the recomputed layer's input is already in kept
    embedding = (2 if learner.casts and tied else 3 if tied else 1) * matrix
    return Activations(
        kept=layers * tokens * hidden * weight + ends,
        forward=cached + passing,
        backward=max(waiting + layer - own_input + step, embedding),
    )


def reading(learner: Learner, lengths: Lengths) -> tuple[int, int]:
    """Returns the peak bytes of a frozen model's pass without gradients, and the bytes of the states that it returns.

    The peak is in attention, when it lays out its blocks, or in the gated product. Matrices are cast one by one.
    """
    shape, compute, weight = learner.shape, learner.compute_bytes, learner.weight_bytes
    tokens, blocks, _ = _attention(learner, lengths)
    stream = 2 * shape.hidden_size + 2 * (shape.query_width + shape.key_width)
    attention = int((LAYING_OUT if _shares_keys(learner) else 1.0) * blocks) + tokens * stream * weight
    products = (3 if learner.rank is None else 4) * shape.intermediate_size * compute
    product = tokens * (products + int((4.4 if compute == FLOAT else 3.2) * shape.hidden_size * FLOAT))
    cast = shape.hidden_size * shape.intermediate_size * compute if learner.casts else 0
    states = (tokens + sum(lengths.completions)) * shape.hidden_size * weight
    return max(attention, product) + cast, states


def _token_bytes(learner: Learner) -> int:
    """Returns the bytes that one layer keeps of one token, without attention."""
    shape, compute = learner.shape, learner.compute_bytes
    norms = 2 * shape.hidden_size * FLOAT + 2 * FLOAT
    if learner.full:
        norms += 2 * shape.hidden_size * learner.weight_bytes
    learning = LINEAR_LAYERS if learner.full else learner.targets
    own_copy = learner.casts or (learner.rank is not None and compute != FLOAT)
    numbers = 3 * shape.intermediate_size + (learner.rank or 0) * len(learner.targets)
    for shared in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        inputs = len(set(shared).intersection(learning))
        numbers += (inputs if own_copy else min(inputs, 1)) * shape.hidden_size
    numbers += shape.query_width * ("o_proj" in learning) + shape.intermediate_size * ("down_proj" in learning)
    return norms + numbers * compute


def _attention(learner: Learner, lengths: Lengths) -> tuple[int, int, int]:
    """Returns the tokens of a pass, the bytes that attention keeps in one layer, and those of the shared masks."""
    shape, compute = learner.shape, learner.compute_bytes
    if not packing_pays(lengths, Sizes.of(shape)):  # rows of equal length: no mask, and keys are not repeated
        tokens = lengths.padded
        numbers = shape.query_width + 2 * shape.key_width  # the output is what o_proj keeps
        return tokens, tokens * (numbers * compute + shape.num_attention_heads * FLOAT), 0
    masked = FLOAT if learner.on_cpu else compute  # on a CPU the masked kernel runs in fp32
    rows, total, shared = lengths.rows, 0, 0
    for block in prompt_blocks(lengths):
        queries = len(block) * max(lengths.prompts[place] for place in block)
        total += queries * shape.query_width * compute * 4  # keys and values are repeated to as many heads
        total += queries * shape.num_attention_heads * FLOAT
    for block in completion_blocks(lengths):
        prompt, completion = (max(rows[place][side] for place in block) for side in (0, 1))
        queries, keys = len(block) * completion, len(block) * (prompt + completion)
        total += queries * shape.query_width * (compute + masked + (masked if masked != compute else 0))
        total += 2 * keys * shape.query_width * masked + queries * shape.num_attention_heads * FLOAT
        if masked != compute and not _shares_keys(learner):  # the prompts' block keeps the tensors before the cast
            total += 2 * keys * shape.query_width * compute
        even = len({rows[place][0] for place in block}) == 1
        mask = (1 if even else len(block)) * completion * (prompt + completion) * masked
        total += mask if masked != compute else 0  # every layer makes a copy in another dtype
        shared += mask
    return lengths.packed, total, shared


def _shares_keys(learner: Learner) -> bool:
    return learner.shape.num_key_value_heads < learner.shape.num_attention_heads


def _backward_step(learner: Learner, tokens: int) -> int:
    """Returns the bytes of the gradients beside one layer's activations, at their peak in the gated product."""
    shape, compute = learner.shape, learner.compute_bytes
    hidden, inner = shape.hidden_size, shape.intermediate_size
    if learner.rank is not None:  # the adapters take their input in fp32
        return tokens * (inner * (FLOAT + compute) + hidden * FLOAT * (1 if compute == FLOAT else 3))
    sizes = learner.weight_bytes + (compute if learner.casts else 0)
    return (tokens + inner) * hidden * sizes + (0 if learner.casts else tokens * inner * compute)


def loss_workspace(learner: Learner, tokens: int) -> int:
    """Returns the peak bytes for the log-probs of this many completion tokens, forward and backward."""
    shape, compute, weight = learner.shape, learner.compute_bytes, learner.weight_bytes
    chunk, cast = min(learner.chunk, tokens), _cast_projection(learner)
    logits, block = _logits(learner, tokens)
    states = tokens * shape.hidden_size * weight + (chunk * shape.hidden_size * compute if learner.casts else 0)
    drawn = logits * compute + (block * FLOAT if compute != FLOAT else 0)
    passing = drawn
    if learner.full:
        summed = shape.vocabulary_matrix * weight if tokens > chunk else 0
        newest = shape.vocabulary_matrix * compute
        if learner.casts and (learner.on_cpu or not summed):  # a GPU adds numbers of two dtypes without a copy
            newest += shape.vocabulary_matrix * weight
        passing = summed + max(drawn, logits * compute + newest)
    return max(scoring_workspace(learner, tokens), cast + states + passing)


def scoring_workspace(learner: Learner, tokens: int) -> int:
    """Returns the same without gradients: a chunk of logits, a block of them as fp32, and the block's exponentials."""
    logits, block = _logits(learner, tokens)
    compute = learner.compute_bytes
    return _cast_projection(learner) + logits * compute + block * FLOAT * (1 if compute == FLOAT else 2)


def _logits(learner: Learner, tokens: int) -> tuple[int, int]:
    """Returns the numbers of logits of a chunk and of a block."""
    chunk, vocabulary = min(learner.chunk, tokens), learner.shape.vocab_size
    return chunk * vocabulary, min(chunk, block_rows(vocabulary, on_cpu=learner.on_cpu)) * vocabulary


def _cast_projection(learner: Learner) -> int:
    return learner.shape.vocabulary_matrix * learner.compute_bytes if learner.casts else 0
