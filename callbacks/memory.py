"""Memory in use, now and at most since the process began, in megabytes of 10⁶ bytes."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import torch

STATM = Path("/proc/self/statm")
MEGABYTE = 1e6


def memory_in_use(device: torch.device) -> float | None:
    """Of tensors on an accelerator; on CPU what the process holds resident, None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / MEGABYTE
    if not STATM.exists():
        return None
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def peak_memory(device: torch.device) -> float:
    """The most there was of it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / MEGABYTE
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE
