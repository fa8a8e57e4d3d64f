"""A function of one's own that is called in another process: it must be found there, and take what it is given."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from contrastive_reasoning.tasks.function_worker import greeting


def greeting_of(function: Callable[..., Any], *, takes: Sequence[str]) -> bytes:
    """What a worker is told first, so that it calls ``function``.

    Raises:
        ValueError: for a function that does not take these arguments, one after another, or that no other process can
            import: a lambda, or one that stands in another function.
    """
    try:
        inspect.signature(function).bind(*takes)
    except TypeError as error:
        raise ValueError(f"function must take ({', '.join(takes)}), {function!r} does not: {error}") from error
    return importable(function)


def importable(function: Callable[..., Any]) -> bytes:
    """As :func:`greeting_of`, whatever the function takes."""
    try:
        return greeting(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"function must be importable by its name in another process, {function!r} is not: {error}"
        ) from error
