"""A bound on the work that a text may cause."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

RUNAWAY = 30.0
"""Seconds of this process. Reading such texts once takes about one; in quadratic time it takes minutes to hours.

It is the work that is bounded, not the pace: a slow or busy machine passes.
"""


@contextmanager
def assert_bounded_work() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < RUNAWAY
