"""Micro-batches that do not fit: half as many tokens at once, and the same gradient."""

from __future__ import annotations

import torch

CPU_REFUSAL = "can't allocate memory"
"""What torch's allocator for the host says, in a plain RuntimeError."""


def out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or CPU_REFUSAL in str(error)
