"""Micro-batches that do not fit: half as many tokens at once, and the same gradient."""

from __future__ import annotations

import gc

import torch

CPU_REFUSAL = "can't allocate memory"
"""What torch's allocator for the host says, in a plain RuntimeError."""


def out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or CPU_REFUSAL in str(error)


def let_go() -> None:
    """Give back what the failed pass has left."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
