"""How near decoding comes to what memory allows: the time its bytes take to be read, over the time that it takes.

    bytes of a step    all weights once
                     + keys and values of each prompt once, for the group that reads them
                     + keys and values of each running row's own tokens
    roofline           bytes of all steps / bandwidth of a large copy, measured in the same process

The fraction says how the rate at which decoding reads these bytes compares with the rate of a copy, no more.
Activations and logits are left out of the bytes, which makes it smaller. Two things make it larger, beyond 1 in the
extreme: weights that fit in a cache are not read from memory again, and reading alone may be faster than a copy, whose
writes may fetch what they overwrite first, which nobody counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.peers.conversation import timed

COPIED = {"cpu": 2**27, "cuda": 2**31}
"""Bytes of the copy, many times those of a cache."""
COPIES = 5


class Traffic(NamedTuple):
    """What a policy's decoding reads, in bytes."""

    weights: int
    """At each step."""
    position: int
    """Keys and values of one token, all layers."""


def traffic_of(policy: Any) -> Traffic:
    """Of a policy as it decodes: weights in its compute dtype; on a CPU keys and values are fp32."""
    config = policy.model.config
    size = policy.compute_dtype.itemsize
    weights = sum(parameter.numel() for parameter in policy.model.parameters())
    if not config.tie_word_embeddings:  # of the embedding a few rows are read; tied, it is the head, and read whole
        weights -= policy.model.get_input_embeddings().weight.numel()
    heads = 2 * config.num_hidden_layers * config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Traffic(weights=weights * size, position=heads * width * (4 if policy.device.type == "cpu" else size))


def decode_bytes(traffic: Traffic, prompts: Sequence[int], lengths: Sequence[int]) -> int:
    """Bytes that decoding reads after the prefill, which gives each row's first token.

    Args:
        traffic: of the policy.
        prompts: tokens of each prompt.
        lengths: tokens of each completion, prompt by prompt, as many of each.
    """
    group = len(lengths) // len(prompts)
    total = 0
    for step in range(1, max(lengths)):
        running = [row for row, length in enumerate(lengths) if length > step]
        shared = sum(prompts[prompt] for prompt in {row // group for row in running})
        total += traffic.weights + traffic.position * (shared + step * len(running))
    return total


def copy_bandwidth(device: torch.device, *, size: int) -> float:
    """Bytes per second of the fastest of a few copies of ``size`` bytes, read and written."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return 2 * size / min(timed(lambda: target.copy_(source)) for _ in range(COPIES))
