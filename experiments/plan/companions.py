"""What stands beside the policy in GRPO: reference, critic, CLIPO head, a vLLM server; from the configuration."""

from __future__ import annotations

from typing import Any

from contrastive_reasoning.policies.shape import find_shape
from experiments.config.composition import critic_checkpoints
from experiments.plan.cache import Seating, cache_blocks
from experiments.plan.learner import Learner, size_of
from experiments.plan.moments import Companions

TRAINED = 4 * (1 + 1 + 2)
"""Bytes of a parameter in fp32 with its gradient and AdamW's moments."""


def companions(config: Any, learner: Learner, seats: Seating) -> Companions:
    """From the nodes ``module``, ``objective``, ``reward``, ``critic`` and ``rollout``."""
    compared = config.objective.get("kl") is not None and config.objective.get("kl_weight", 0.0) > 0
    reference = learner.as_reference() if config.module.reference is not None and compared else None
    kl = str((config.objective.get("kl") or {}).get("_target_"))
    served = uses_server(config)
    return Companions(
        reference=reference,
        offloaded=bool(config.module.offload_reference),
        full_kl=reference is not None and kl.endswith(".FullKL"),
        critic=text_critic_bytes(config) if any(True for _ in critic_checkpoints(config.reward)) else 0,
        head=head_bytes(config.reward, learner.shape.hidden_size),
        server=server_bytes(learner, seats) if served else 0,
        server_sleeps=served and config.rollout.engine.sleep_level is not None,
    )


def uses_server(config: Any) -> bool:
    """Whether rollouts are drawn by a vLLM server."""
    return str(config.rollout.engine._target_).endswith("VLLMEngine")


def server_bytes(learner: Learner, seats: Seating) -> int:
    """Weights in the compute dtype, and the keys and values of the rows that are asked for at a time.

    A server takes what ``--gpu-memory-utilization`` gives it, and uses the rest for more rows at a time: this is the
    least it can do with.
    """
    return learner.shape.parameters * learner.compute_bytes + sum(cache_blocks(learner, seats))


def head_bytes(reward: Any, hidden: int) -> int:
    """Of CLIPO's head: a matrix to its dimension, and a square one before it where it has two layers."""
    head = reward.get("head")
    if head is None:
        return 0
    square = hidden**2 if str(head._target_).endswith("MLPHead") else 0
    return TRAINED * (square + hidden * head.dimension)


def text_critic_bytes(config: Any) -> int:
    """Weights of the model that a text critic reads with; other critics are some MiB, and counted as nothing.

    Raises:
        ValueError: where that model's shape is not known.
    """
    encoder = config.critic.get("encoder")
    if encoder is None:
        return 0
    shape = find_shape(encoder.pretrained).shape
    backbone = shape.parameters - (0 if shape.tie_word_embeddings else shape.vocabulary_matrix)
    return backbone * size_of("critic.encoder.dtype", encoder.dtype)
