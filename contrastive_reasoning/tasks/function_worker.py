"""The process that calls a function on completions: ``python -m contrastive_reasoning.tasks.function_worker BYTES``.

The first line tells where modules are looked for, the second the function, each later one a (problem, completion), as
pickles in base64: they come from the process that started this one. What goes out is JSON, for nothing is trusted that
has been near the function:

    [ready, ""] or [refused, reason]        once
    [number, 0.5]                           what it returned
    [error, reason]                         it raised, or returned what is no finite number
    [fatal, reason]                         so too, and this process should not be asked again
"""

from __future__ import annotations

import base64
import pickle
import sys
from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any

from contrastive_reasoning.tasks.worker_process import READY, Conversation, limit_memory, memory_in_use

REFUSED, NUMBER, ERROR, FATAL = "refused", "number", "error", "fatal"
LONGEST = 200
"""Characters of an exception's text that are kept."""

Call = Callable[[Callable[..., Any], str], tuple[str, object]]
"""The function and a line → what goes out for it; what the function raises is not its business."""


def serve(memory: int, call: Call) -> None:
    """Answer lines until the input ends; ``memory`` bytes are what calls may take beyond what loading took."""
    parent = Conversation()
    try:
        sys.path[:] = unpacked(parent.hear())
        function = unpacked(parent.hear())
    except BaseException as error:  # whatever importing it ends in, an exit included
        parent.say(REFUSED, described(error))
        return
    limit_memory(memory_in_use() + memory)
    parent.say(READY, "")
    while True:
        parent.say(*_guarded(call, function, parent.hear()))


def number(function: Callable[..., Any], line: str) -> tuple[str, float | str]:
    """Status, and the number or the reason, of one (problem, completion)."""
    value = plain(function(*unpacked(line)))
    if not isinstance(value, Real):
        return ERROR, f"returned {type(value).__name__}, not a number"
    value = float(value)
    return (NUMBER, value) if isfinite(value) else (ERROR, f"returned {value}")


def plain(value: Any) -> Any:
    """A scalar of numpy or torch as the number, true or false that it is; anything else as it stands."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _guarded(call: Call, function: Callable[..., Any], line: str) -> tuple[str, object]:
    try:
        return call(function, line)
    except MemoryError:
        return FATAL, "out of memory"
    except Exception as error:  # the user's function may raise anything: of this call alone, and its reason is kept
        return ERROR, described(error)
    except BaseException as error:  # it wanted to end the process: so be it, once this is said
        return FATAL, described(error)


def described(error: BaseException) -> str:
    """The exception's name and the first line of its text."""
    text = first_words(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_words(text: str) -> str:
    """The first line, at most ``LONGEST`` characters of it.

    A long one ends with a whole word: of a secret without spaces that stands in it there must be all or nothing, for
    who hides secrets to find it.
    """
    line = next(iter(text.splitlines()), "")
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rpartition(' ')[0]} …".lstrip()


def greeting(function: Callable[..., Any]) -> bytes:
    """The first two lines: modules are found where this process finds them."""
    return packed(sys.path) + b"\n" + packed(function) + b"\n"


def packed(what: object) -> bytes:
    """A line without its end."""
    return base64.b64encode(pickle.dumps(what))


def unpacked(line: str) -> Any:
    return pickle.loads(base64.b64decode(line))


if __name__ == "__main__":
    serve(int(sys.argv[1]), number)
