"""The process that calls a function on a whole batch: ``python -m contrastive_reasoning.tasks.batch_worker BYTES``.

As the worker of rewards, :mod:`function_worker`, but that a line holds the keyword arguments of one call and how
many numbers are wanted, and that ``[numbers, [0.5, null, …]]`` goes out: null where the function said None.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterable
from math import isfinite
from numbers import Real
from typing import Any

from contrastive_reasoning.tasks.function_worker import ERROR, plain, serve, unpacked

NUMBERS = "numbers"


def scored(function: Callable[..., Any], line: str) -> tuple[str, list[float | None] | str]:
    """Status, and the numbers or the reason."""
    arguments, wanted = unpacked(line)
    said = function(**arguments)
    if inspect.isawaitable(said):
        said = asyncio.run(_awaited(said))
    if isinstance(said, str) or not isinstance(said, Iterable):
        return ERROR, f"returned {type(said).__name__}, not a list of {wanted} numbers"
    said = [plain(value) for value in said]
    if len(said) != wanted:
        return ERROR, f"returned {len(said)} numbers for {wanted} completions"
    for row, value in enumerate(said):
        if value is not None and not (isinstance(value, Real) and isfinite(value)):
            what = value if isinstance(value, Real) else type(value).__name__
            return ERROR, f"returned {what} for completion {row}, neither a finite number nor None"
    return NUMBERS, [None if value is None else float(value) for value in said]


async def _awaited(coming: Any) -> Any:
    return await coming


if __name__ == "__main__":
    serve(int(sys.argv[1]), scored)
