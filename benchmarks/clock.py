"""Seconds that include what a GPU was asked to do: it answers a call before the work is done."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch


def now() -> float:
    """The time once the work of the current GPU, if one is in use, is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return perf_counter()


def timed(function: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = now()
    function()
    return now() - start
