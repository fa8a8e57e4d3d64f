"""A budget of steps for a computation of which nobody knows how long it takes. A step is the call of a function.

Unlike an alarm it needs no signal, so it works in every thread; and it stops the same work on a slow and on a busy
machine. The exception is no ``Exception``: code in between that catches those does not swallow it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


class OutOfSteps(BaseException):
    """The budget is spent."""


def within(steps: int, compute: Callable[[], T]) -> T:
    """``compute()``, stopped after ``steps`` calls of Python functions in this thread.

    Raises:
        OutOfSteps: if the budget did not suffice.
    """
    budget = _budget(steps)
    tracer = sys.gettrace()
    # Python asks the tracer at each call of a function; None is its answer that the lines within are not of interest
    sys.settrace(lambda frame, event, argument: next(budget))
    try:
        return compute()
    finally:
        sys.settrace(tracer)


def _budget(steps: int) -> Iterator[None]:
    for _ in range(steps):
        yield
    raise OutOfSteps
