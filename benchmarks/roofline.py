"""The memory roofline of decoding: the time to read its bytes at the bandwidth of a copy, over the time it takes.

    bytes of a step    all weights once
                     + keys and values of each prompt once, for the group that reads them
                     + keys and values of each running row's own tokens
    roofline           bytes of all steps / bandwidth of a large copy, measured in the same process

The fraction only compares the rate at which decoding reads these bytes with the rate of a copy. The bytes leave out
activations and logits, which makes it smaller. Two effects make it larger, even above 1. Weights that fit in a cache
are not read from memory again. Reading alone may be faster than a copy, whose writes may first fetch the memory that
they overwrite, and that traffic is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.peers.conversation import time_call

COPIED = {"cpu": 2**27, "cuda": 2**31}
"""Bytes of the copy by device, many times the size of a cache."""
COPIES = 5


class Traffic(NamedTuple):
    """The bytes that decoding reads."""

    weights: int
    """Bytes of weights at each step."""
    position: int
    """Bytes of keys and values of one token, over all layers."""


def traffic_of(policy: Any) -> Traffic:
    """Returns the traffic of a policy: all in its compute dtype, except keys and values on a CPU, which are fp32."""
    config = policy.model.config
    size = policy.compute_dtype.itemsize
    weights = sum(parameter.numel() for parameter in policy.model.parameters())
    if not config.tie_word_embeddings:  # few rows of the embedding are read; a tied one is the head, and read whole
        weights -= policy.model.get_input_embeddings().weight.numel()
    heads = 2 * config.num_hidden_layers * config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Traffic(weights=weights * size, position=heads * width * (4 if policy.device.type == "cpu" else size))


def decode_bytes(traffic: Traffic, prompts: Sequence[int], lengths: Sequence[int]) -> int:
    """Returns the bytes that decoding reads after the prefill, which gives each row's first token.

    ``prompts`` and ``lengths`` are tokens of each prompt and completion; each prompt has equally many, in its order.
    """
    group = len(lengths) // len(prompts)
    total = 0
    for step in range(1, max(lengths)):
        running = [row for row, length in enumerate(lengths) if length > step]
        shared = sum(prompts[prompt] for prompt in {row // group for row in running})
        total += traffic.weights + traffic.position * (shared + step * len(running))
    return total


def copy_bandwidth(device: torch.device, *, size: int) -> float:
    """Returns the bytes per second, read plus written, of the fastest of ``COPIES`` copies of ``size`` bytes."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return 2 * size / min(time_call(lambda: target.copy_(source)) for _ in range(COPIES))
