"""A bound on the processing time of a text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

RUNAWAY = 30.0
"""CPU seconds of this process. Linear reading of such a text takes about one second, quadratic minutes to hours.

CPU time is bounded, not wall-clock time, so that a slow or busy machine passes.
"""


@contextmanager
def assert_bounded_work() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < RUNAWAY
