"""KL(π ‖ reference) over the whole vocabulary at each token, without ever holding the full logits of either policy.

        KL_n = Σ_v p_n(v) (log p_n(v) − log q_n(v))            p = softmax(W h_n / τ),  q the reference's

Chunks of tokens are projected to the vocabulary by both policies, reduced to one number each, and recomputed in
backward, so the workspace is a few times chunk × V whatever the batch. Softmax and sum are in fp32, in fp64 for fp64.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.few_shapes import linear_of_few_shapes
from contrastive_reasoning.policies.log_probs import placed


def full_kl(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    ref_hidden: Float[Tensor, "N E"],
    ref_weight: Float[Tensor, "V E"],
    *,
    temperature: float,
    chunk: int,
    bias: Float[Tensor, " V"] | None = None,
    ref_bias: Float[Tensor, " V"] | None = None,
) -> Float[Tensor, " N"]:
    """The KL at each of N tokens, in nats, never below 0 up to rounding.

    Args:
        hidden: the policy's last hidden states, after the final norm, at the positions that predict the N tokens.
        weight: its vocabulary projection.
        ref_hidden: the reference's states at the same positions; its width may be another.
        ref_weight: the reference's projection, to the same vocabulary.
        temperature: τ > 0, what the logits of both are divided by.
        chunk: tokens projected at a time, at least 1.
        bias: of the policy's projection, if it has one.
        ref_bias: of the reference's.

    Raises:
        ValueError: for a temperature or chunk that is not positive, or vocabularies of different size.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive when scoring, got {temperature}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if len(weight) != len(ref_weight):
        raise ValueError(f"policy and reference must share a vocabulary: {len(weight)} tokens and {len(ref_weight)}")
    parts = [
        _recomputed(hidden[i : i + chunk], weight, bias, ref_hidden[i : i + chunk], ref_weight, ref_bias, temperature)
        for i in range(0, max(hidden.shape[0], 1), chunk)  # of no token one empty chunk, which still has a gradient
    ]
    return torch.cat(parts)


def log_probs_and_full_kl(
    policy: CausalLMPolicy,
    reference: CausalLMPolicy,
    prompt_ids: Int[Tensor, "p s"],
    prompt_mask: Bool[Tensor, "p s"],
    completion_ids: Int[Tensor, "b t"],
    mask: Bool[Tensor, "b t"],
    *,
    owner: Int[Tensor, " b"] | None = None,
    temperature: float,
) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b t"]]:
    """``policy.log_probs`` and the KL to the reference, by one pass of each; 0 where masked out.

    Nothing of the reference gets a gradient; of its pass only the states of these rows are held, never the logits.
    """
    rows = prompt_ids, prompt_mask, completion_ids, mask, owner
    hidden = policy.completion_states(*rows).predicting
    with torch.no_grad():
        ref_hidden = reference.completion_states(*rows).predicting
    weight, bias = policy.head
    ref_weight, ref_bias = reference.head
    ref_bias = None if ref_bias is None else ref_bias.detach()
    shared: dict[str, Any] = {"temperature": temperature, "chunk": policy.chunk, "bias": bias}
    with policy.autocast():
        chosen = policy.score(hidden, weight, completion_ids[mask], **shared)
        divergence = full_kl(hidden, weight, ref_hidden, ref_weight.detach(), ref_bias=ref_bias, **shared)
    return placed(chosen, mask), placed(divergence, mask)


def _recomputed(*arguments: Any) -> Tensor:
    if not torch.is_grad_enabled():
        return _divergence(*arguments)
    return checkpoint(_divergence, *arguments, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore


def _divergence(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    ref_hidden: Tensor,
    ref_weight: Tensor,
    ref_bias: Tensor | None,
    temperature: float,
) -> Tensor:
    policy = _log_softmax(hidden, weight, bias, temperature)
    reference = _log_softmax(ref_hidden, ref_weight, ref_bias, temperature)
    return (policy.exp() * (policy - reference)).sum(dim=-1)


def _log_softmax(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = linear_of_few_shapes(hidden, weight, bias)
    return (logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature).log_softmax(dim=-1)
