"""Calls of a user's function in worker processes, which import it by its name.

    FunctionPool        in this process: many calls, their replies in order
    ``serve``           in a worker: ``python -m contrastive_reasoning.workers.functions KIND BYTES``

A worker's first input line holds the module search path, the second the planned code of the user's modules, the third
the function, and each later one the arguments of a call. All are pickles in base64, which is safe because they come
from the process that started this one. Replies are JSON:

    [ready, ""] or [refused, reason]        once
    [number, 0.5]                           KIND number: the function returned a finite number
    [numbers, [0.5, null, …]]               KIND numbers: a list of numbers for a batch, null for None
    [ok, ""] or [wrong, reason]             KIND verdict
    [error, reason]                         the function raised, or returned something else
    [fatal, reason]                         the same, and this process must not be used again
    [refused, reason]                       the call imported code that differs from the planned code
"""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from itertools import islice
from math import isfinite
from numbers import Real
from sysconfig import get_paths
from typing import Any

from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.workers.failures import RewardFailed
from contrastive_reasoning.workers.planned_code import ChangedCode, expect, expected
from contrastive_reasoning.workers.pool import (
    ERROR,
    FATAL,
    READY,
    REFUSED,
    Connection,
    Reply,
    WorkerPool,
    WorkerRefused,
    limit_memory,
    memory_in_use,
    worker_command,
)

NUMBER, NUMBERS, OK, WRONG = "number", "numbers", "ok", "wrong"
LONGEST = 200
"""Maximum number of characters kept of an exception's text."""
LIBRARIES = tuple(get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
"""Folders of library code, as opposed to the user's code."""


class FunctionPool:
    """The replies to many calls of a function, in their order. Processes start when first needed and are reused.

    Args:
        function: every process imports it by its name, so it must not be a lambda or a nested function. Its printed
            output is discarded.
        kind: the kind of reply: ``number``, ``numbers`` or ``verdict``.
        key: the configuration key that names the function.
        workers: the maximum number of processes.
        limit_s: seconds of wall clock for one call.
        memory_mib: the memory that calls may use beyond what loading the function used, if the platform can measure it.

    Raises ValueError for a number out of range, or a function that no other process can import.
    """

    def __init__(
        self, function: Callable[..., Any], *, kind: str, key: str, workers: int, limit_s: float, memory_mib: int
    ) -> None:
        at_least(1, memory_mib=memory_mib)
        try:
            lines = greeting(function)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"{key} must be importable by its name in another process, {name_of(function)} is not: {error}"
            ) from error
        self.key = key
        command = worker_command(__name__, kind, memory_mib * 2**20)
        self.pool = WorkerPool(command=command, greeting=lines, workers=workers, limit_s=limit_s)

    def __call__(self, calls: Sequence[Any]) -> list[Reply]:
        """Returns the reply to each call. A call is any object that can be pickled.

        Raises RewardFailed if the function cannot be imported in a separate process.
        """
        try:
            return self.pool([pack(call) for call in calls])
        except WorkerRefused as error:
            raise RewardFailed(f"{self.key} does not load in a process of its own: {error}") from error

    def close(self) -> None:
        """Ends all processes. A later call starts new ones."""
        self.pool.close()


def greeting(function: Callable[..., Any]) -> bytes:
    """The first input lines of a worker: the module search path of this process, the planned code, the function."""
    return b"".join(pack(what) + b"\n" for what in (sys.path, expected(), function))


def pack(what: object) -> bytes:
    """Encodes an object as one line, without a line end."""
    return base64.b64encode(pickle.dumps(what))


def unpack(line: str) -> Any:
    return pickle.loads(base64.b64decode(line))


Call = Callable[[Callable[..., Any], str], tuple[str, object]]
"""Maps a function and an input line to the status and value of the reply; ``serve`` handles the exceptions."""


def serve(memory: int, call: Call) -> None:
    """Handles lines until the input ends. Calls may use ``memory`` bytes in addition to what loading used."""
    parent = Connection()
    try:
        sys.path[:] = unpack(parent.receive())
        expect(unpack(parent.receive()))
        function = unpack(parent.receive())
    except BaseException as error:  # importing user code may raise anything, SystemExit included
        parent.send(REFUSED, str(error) if isinstance(error, ChangedCode) else describe(error))
        return
    limit_memory(memory_in_use() + memory)
    parent.send(READY, "")
    while True:
        line = parent.receive()
        try:
            reply = call(function, line)
        except MemoryError:
            reply = FATAL, "out of memory"
        except ChangedCode as changed:
            reply = REFUSED, str(changed)
        except Exception as error:  # the user's function may raise anything; only this call fails
            reply = ERROR, describe(error)
        except BaseException as error:  # SystemExit, for example: the pool replaces the process after the reply
            reply = FATAL, describe(error)
        parent.send(*reply)


def number(function: Callable[..., Any], line: str) -> tuple[str, float | str]:
    """Calls a reward function on one (problem, completion); the reply is its number."""
    value = as_python(function(*unpack(line)))
    if not isinstance(value, Real):
        return ERROR, f"returned {type(value).__name__}, not a number"
    value = float(value)
    return (NUMBER, value) if isfinite(value) else (ERROR, f"returned {value}")


def numbers(function: Callable[..., Any], line: str) -> tuple[str, list[float | None] | str]:
    """Calls a reward function on one batch; the line holds its keyword arguments and the expected count of numbers.

    A mapping, a set, bytes and a table are iterable too, but their items are not the rewards in order.
    """
    arguments, wanted = unpack(line)
    returned = function(**arguments)
    if inspect.isawaitable(returned):
        returned = asyncio.run(_result_of(returned))
    name = name_of(function)
    listed = isinstance(returned, Iterable) and getattr(returned, "ndim", 1) == 1
    if not listed or isinstance(returned, str | bytes | bytearray | Mapping | Set):
        return ERROR, f"{name} returned {type(returned).__name__}, not a list of {wanted} numbers"
    values = [as_python(value) for value in islice(returned, wanted + 1)]
    if len(values) != wanted:
        count = f"more than {wanted}" if len(values) > wanted else len(values)
        return ERROR, f"{name} returned {count} numbers, not a list of {wanted}, one for each completion"
    for row, value in enumerate(values):
        if value is not None and not (isinstance(value, Real) and isfinite(value)):
            what = value if isinstance(value, Real) else type(value).__name__
            return ERROR, f"{name} returned {what} for completion {row}, neither a finite number nor None"
    return NUMBERS, [None if value is None else float(value) for value in values]


def verdict(function: Callable[..., Any], line: str) -> tuple[str, str]:
    """Calls a verifier on one (problem, completion); it returns True, False, a number from 0 to 1, or a reason."""
    value = as_python(function(*unpack(line)))
    if isinstance(value, str):
        reason = first_words(value)
        return (WRONG, reason) if reason else (ERROR, "returned an empty text, which is not a reason")
    if not isinstance(value, Real):
        return ERROR, f"returned {type(value).__name__}, not true, false, a number from 0 to 1, or a reason"
    if not 0 <= float(value) <= 1:
        return ERROR, f"returned {float(value):g}, which is not between 0 and 1"
    if value == 1:
        return OK, ""
    return WRONG, f"scored {float(value):g}" if value else "the verifier said no"


async def _result_of(coming: Awaitable[Any]) -> Any:
    return await coming  # asyncio.run takes a coroutine only; a function may return a future


KINDS: dict[str, Call] = {"number": number, "numbers": numbers, "verdict": verdict}


def as_python(value: Any) -> Any:
    """Converts a scalar of numpy or torch to a Python number or bool; returns anything else unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def name_of(function: Any) -> str:
    """Returns ``module.name`` of a function, looking through ``functools.partial`` wrappers."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return f"{function.__module__}.{name}" if name else repr(function)


def describe(error: BaseException) -> str:
    """The exception's name, the first line of its text, and the line of the user's code that raised it."""
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
    """The first line, cut to at most ``LONGEST`` characters.

    It is cut at the end of a word. A secret without spaces is thus kept whole or not at all; the filter that replaces
    secrets would not find a part of one.
    """
    line = next(iter(text.splitlines()), "")
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rpartition(' ')[0]} …".lstrip()


if __name__ == "__main__":
    serve(int(sys.argv[2]), KINDS[sys.argv[1]])
