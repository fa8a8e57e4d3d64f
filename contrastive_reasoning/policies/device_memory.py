"""Memory of a device that is not needed any more, given back for others to take."""

from __future__ import annotations

import gc

import torch


def give_back() -> None:
    """What the allocator keeps for later."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def let_go() -> None:
    """That, and what objects hold that refer to each other: of a pass that failed, of a stage that has ended."""
    gc.collect()
    give_back()
