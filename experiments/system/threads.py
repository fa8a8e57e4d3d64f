"""How many threads each of several jobs on this machine may have."""

from __future__ import annotations

import os

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What says it, to the libraries below torch."""


def cores_each(at_once: int) -> int:
    """The machine's cores shared out, one at least."""
    return max(1, (os.cpu_count() or 1) // at_once)
