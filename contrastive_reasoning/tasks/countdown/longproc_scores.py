"""LongProc's three scores of a Countdown completion, numerically its own (arXiv:2501.05414), by safe means.

They are not our verdict: LongProc reads the *first* ``<Solution>`` and ``</Solution>``, and compares the written search
with its own line by line. Kept as they are: a perfect search without a solution scores (n−1)/n of its n lines, the bare
first line −1/n, results after ``=`` are not compared. Ours differ only where LongProc's let rules be broken (negative
numbers, results of 2000 and more, ``2_1``), and where its evaluation of model text crashes: then all three are 0.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from functools import lru_cache

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.trace import search_trace
from contrastive_reasoning.tasks.countdown.verifier import CLOSE, MAX_BLOCK, MAX_LINE, OPEN, parse_equation, replay
from contrastive_reasoning.tasks.countdown.wording import LONGPROC


def longproc_scores(problem: Problem, completion: str) -> dict[str, float]:
    """``accuracy``, ``partial_accuracy`` and ``extraction_rate``, as LongProc computes them.

    A right solution scores 1 in all three, whatever the search before it; without one the search is compared.

    Raises:
        ValueError: when the search of a problem whose target cannot be reached would have to be compared.
    """
    numbers, target = tuple(problem.fields["numbers"]), problem.fields["target"]
    block = _first_block(completion)
    if block is not None:
        lines = block.strip().split("\n") if len(block) <= MAX_BLOCK else []
        if len(lines) == len(numbers) - 1:
            if _crashes(lines):
                return _scores(0.0, 0.0, 0.0)
            if _solves(lines, numbers, target):
                return _scores(1.0, 1.0, 1.0)
    return _scores(0.0, _partial_accuracy(numbers, target, completion), float(block is not None))


def _scores(accuracy: float, partial: float, extraction: float) -> dict[str, float]:
    return {"accuracy": accuracy, "partial_accuracy": partial, "extraction_rate": extraction}


def _first_block(completion: str) -> str | None:
    """What stands between the first open and the first close tag: nothing, if they stand the other way round."""
    start, close = completion.find(OPEN), completion.find(CLOSE)
    return None if start < 0 or close < 0 else completion[start + len(OPEN) : close]


def _solves(lines: Sequence[str], numbers: tuple[int, ...], target: int) -> bool:
    equations = [equation for equation in map(parse_equation, lines) if equation]
    return len(equations) == len(lines) and replay(numbers, target, equations) is None


def _crashes(lines: Sequence[str]) -> bool:
    """Whether LongProc's evaluation would break off with an exception, before a line that it rejects in peace."""
    for line in lines:
        if line.count("=") != 1:
            return False
        left = line.split("=")[0].strip()
        if _breaks_python(left) or re.fullmatch(r"[0-9]+\s*/\s*0+", left):
            return True
        if parse_equation(line) is None:
            return False
    return False


def _breaks_python(text: str) -> bool:
    """Whether a bounded text is no Python expression. It is parsed, never compiled or run."""
    if len(text) > MAX_LINE:
        return False
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text, mode="eval")
    except ValueError:  # a lone surrogate or a null byte: LongProc catches this one
        return False
    except (SyntaxError, MemoryError, RecursionError):
        return True
    return False


def _partial_accuracy(numbers: tuple[int, ...], target: int, completion: str) -> float:
    """The index of the line where the two searches part, over the lines after the first one; 0 without a search."""
    _, header, written = completion.rpartition(LONGPROC.header)
    if not header:
        return 0.0
    first, *expected = _reference_lines(numbers, target)
    written_first, *lines = written.strip().split("\n\n", 1)[0].split("\n")
    if written_first != first:
        return 0.0
    index = -1
    for index, (ours, theirs) in enumerate(zip(lines, expected, strict=False)):  # noqa: B007
        if _action(ours) != _action(theirs):
            break
    return index / len(expected)


@lru_cache(maxsize=256)
def _reference_lines(numbers: tuple[int, ...], target: int) -> tuple[str, ...]:
    search = search_trace(numbers, target, style="longproc").text.split("\n\n", 1)[0]
    return tuple(search.split("\n")[1:])


def _action(line: str) -> tuple[str, bool]:
    """What LongProc compares of a line: the operands it tries and whether it drops the branch; else the line itself."""
    tried = line.partition("=")[0] if line.lstrip(" ").startswith("|- Try ") else line
    return tried, "drop this branch" in line
