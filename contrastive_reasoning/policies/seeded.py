"""Initial weights as a function of a seed, independent of earlier draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Gives modules built inside the same weights for the same seed; restores the CPU's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
