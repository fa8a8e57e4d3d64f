"""The process that has a function judge completions: ``python -m contrastive_reasoning.tasks.verify_worker BYTES``.

As the worker of rewards, :mod:`function_worker`, but for what goes out:

    [ok, ""]                 it returned True, or 1
    [wrong, reason]          it returned False, a number from 0 to less than 1, or the reason as a text
    [error, reason]          it raised, or returned something else
    [fatal, reason]          so too, and this process should not be asked again
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from numbers import Real
from typing import Any

from contrastive_reasoning.tasks.function_worker import ERROR, first_words, plain, serve, unpacked

OK, WRONG = "ok", "wrong"


def judged(function: Callable[..., Any], line: str) -> tuple[str, str]:
    """Status and reason of one (problem, completion)."""
    said = plain(function(*unpacked(line)))
    if isinstance(said, str):
        reason = first_words(said)
        return (WRONG, reason) if reason else (ERROR, "returned an empty text, which is no reason")
    if not isinstance(said, Real):
        return ERROR, f"returned {type(said).__name__}, not true, false, a number from 0 to 1, or a reason"
    if not 0 <= float(said) <= 1:
        return ERROR, f"returned {float(said):g}, which is not between 0 and 1"
    if said == 1:
        return OK, ""
    return WRONG, f"scored {float(said):g}" if said else "the verifier said no"


if __name__ == "__main__":
    serve(int(sys.argv[1]), judged)
