"""The process that calls a user's function: ``python -m contrastive_reasoning.tasks.function_worker KIND BYTES``.

The first line holds the module search path, the second the function, each later one the arguments of a call, as
pickles in base64: they come from the process that started this one. Replies are JSON:

    [ready, ""] or [refused, reason]        once
    [number, 0.5]                           of KIND number: the function returned a finite number
    [numbers, [0.5, null, …]]               of KIND numbers: a list of them for a batch, null where it returned None
    [ok, ""] or [wrong, reason]             of KIND verdict
    [error, reason]                         it raised, or returned something else
    [fatal, reason]                         the same, and this process should not be used again
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from math import isfinite
from numbers import Real
from sysconfig import get_paths
from typing import Any

from contrastive_reasoning.tasks.worker_pool import ERROR, FATAL, READY, Connection, limit_memory, memory_in_use

REFUSED, NUMBER, NUMBERS, OK, WRONG = "refused", "number", "numbers", "ok", "wrong"
LONGEST = 200
"""Characters of an exception's text that are kept."""
LIBRARIES = tuple(get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
"""Folders whose code is not the user's."""

Call = Callable[[Callable[..., Any], str], tuple[str, object]]
"""The function and a line → status and value of the reply; what the function raises is handled by ``serve``."""


def serve(memory: int, call: Call) -> None:
    """Handle lines until the input ends; ``memory`` bytes are what calls may take beyond what loading took."""
    parent = Connection()
    try:
        sys.path[:] = unpack(parent.receive())
        function = unpack(parent.receive())
    except BaseException as error:  # whatever importing it ends in, an exit included
        parent.send(REFUSED, describe(error))
        return
    limit_memory(memory_in_use() + memory)
    parent.send(READY, "")
    while True:
        line = parent.receive()
        try:
            reply = call(function, line)
        except MemoryError:
            reply = FATAL, "out of memory"
        except Exception as error:  # the user's function may raise anything: it ends this call alone
            reply = ERROR, describe(error)
        except BaseException as error:  # an exit: the process ends, once the reply is sent
            reply = FATAL, describe(error)
        parent.send(*reply)


def number(function: Callable[..., Any], line: str) -> tuple[str, float | str]:
    """The number of one (problem, completion)."""
    value = as_python(function(*unpack(line)))
    if not isinstance(value, Real):
        return ERROR, f"returned {type(value).__name__}, not a number"
    value = float(value)
    return (NUMBER, value) if isfinite(value) else (ERROR, f"returned {value}")


def numbers(function: Callable[..., Any], line: str) -> tuple[str, list[float | None] | str]:
    """The numbers of one batch, given by its keyword arguments and how many numbers are wanted."""
    arguments, wanted = unpack(line)
    returned = function(**arguments)
    if inspect.isawaitable(returned):
        returned = asyncio.run(_result_of(returned))
    if isinstance(returned, str) or not isinstance(returned, Iterable):
        return ERROR, f"returned {type(returned).__name__}, not a list of {wanted} numbers"
    values = [as_python(value) for value in returned]
    if len(values) != wanted:
        return ERROR, f"returned {len(values)} numbers for {wanted} completions"
    for row, value in enumerate(values):
        if value is not None and not (isinstance(value, Real) and isfinite(value)):
            what = value if isinstance(value, Real) else type(value).__name__
            return ERROR, f"returned {what} for completion {row}, neither a finite number nor None"
    return NUMBERS, [None if value is None else float(value) for value in values]


def verdict(function: Callable[..., Any], line: str) -> tuple[str, str]:
    """The verdict on one (problem, completion): True, False, a number from 0 to 1, or why it is wrong."""
    value = as_python(function(*unpack(line)))
    if isinstance(value, str):
        reason = first_words(value)
        return (WRONG, reason) if reason else (ERROR, "returned an empty text, which is no reason")
    if not isinstance(value, Real):
        return ERROR, f"returned {type(value).__name__}, not true, false, a number from 0 to 1, or a reason"
    if not 0 <= float(value) <= 1:
        return ERROR, f"returned {float(value):g}, which is not between 0 and 1"
    if value == 1:
        return OK, ""
    return WRONG, f"scored {float(value):g}" if value else "the verifier said no"


async def _result_of(coming: Awaitable[Any]) -> Any:
    return await coming


KINDS: dict[str, Call] = {"number": number, "numbers": numbers, "verdict": verdict}


def as_python(value: Any) -> Any:
    """A scalar of numpy or torch as the number, true or false that it is; anything else unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def describe(error: BaseException) -> str:
    """The exception's name, the first line of its text, and the line of the user's code in which it arose."""
    text = first_words(str(error))
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    called = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<frozen")]
    own = [frame for frame in called if not frame.filename.startswith(LIBRARIES)] or called
    if not own:
        return named
    file = os.path.relpath(own[-1].filename)
    return f"{named} ({own[-1].filename if file.startswith('..') else file}:{own[-1].lineno}, in {own[-1].name})"


def first_words(text: str) -> str:
    """The first line, at most ``LONGEST`` characters of it.

    A long one ends with a whole word: a secret without spaces must stand in it whole or not at all, or what replaces
    secrets would not find it.
    """
    line = next(iter(text.splitlines()), "")
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rpartition(' ')[0]} …".lstrip()


def greeting(function: Callable[..., Any]) -> bytes:
    """The first two lines: modules are found where this process finds them."""
    return pack(sys.path) + b"\n" + pack(function) + b"\n"


def pack(what: object) -> bytes:
    """As a line without its end."""
    return base64.b64encode(pickle.dumps(what))


def unpack(line: str) -> Any:
    return pickle.loads(base64.b64decode(line))


if __name__ == "__main__":
    serve(int(sys.argv[2]), KINDS[sys.argv[1]])
