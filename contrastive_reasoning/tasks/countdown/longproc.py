"""LongProc's Countdown (arXiv:2501.05414): its files, user-defined JSON-lines files, and its three scores.

Every problem that is read is checked. Malformed or unsolvable problems are listed by file and place; they raise an
error or are left out.

The scores equal LongProc's own numerically, but no model text is executed. They differ from our verdict: LongProc uses
the *first* ``<Solution>`` and ``</Solution>``, and compares the written search with its own line by line. Its
peculiarities are kept: results after ``=``, for example, are not compared. Our scores differ in two cases only. They
enforce rules that LongProc's do not (no negative numbers, no results of 2000 and more, no ``2_1``). Where its
evaluation of model text crashes, all three are 0.
"""

from __future__ import annotations

import ast
import json
import logging
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

from contrastive_reasoning.ranges import one_of
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.problem import problem_key
from contrastive_reasoning.tasks.countdown.search import unsolvable
from contrastive_reasoning.tasks.countdown.states import LARGEST, WIDTH
from contrastive_reasoning.tasks.countdown.trace import WORDINGS, search_trace
from contrastive_reasoning.tasks.countdown.verifier import CLOSE, MAX_BLOCK, MAX_LINE, OPEN, parse_equation, replay
from contrastive_reasoning.tasks.rows import OnBad

_LISTED = 20
_LOG = logging.getLogger(__name__)


class ReadProblem(NamedTuple):
    numbers: tuple[int, ...]
    target: int
    source: str
    """Name of the file, without its suffix."""

    @property
    def key(self) -> str:
        return problem_key(self.numbers, self.target)


def read_longproc(files: Sequence[Path], *, on_bad: str) -> tuple[ReadProblem, ...]:
    """Reads the problems of LongProc's ``countdown_*.json`` files, in the order of the files.

    Raises:
        ValueError: if a file is not a JSON list, or, with ``on_bad="refuse"``, if a problem is bad. The message lists
            the first 20 bad problems.
    """
    rows: list[tuple[str, str, Any]] = []
    for file in files:
        items = _decode(file.read_text(encoding="utf-8-sig", errors="replace"))
        if isinstance(items, Exception):
            raise ValueError(f"{file.name} is not valid JSON: {items}") from items
        if not isinstance(items, list):
            raise ValueError(f"{file.name} must hold a list of problems, got {type(items).__name__}")
        rows += [(file.stem, f"{file.name}, item {index}", item) for index, item in enumerate(items)]
    return _check_rows(rows, on_bad=on_bad, distinct=False)


def read_problem_lines(path: str | Path, *, on_bad: str) -> tuple[ReadProblem, ...]:
    """Reads the problems of a JSON-lines file, ``{"nums": [21, 16, 17, 26], "target": 46}`` per line.

    Empty lines are skipped. A line that repeats an earlier problem is bad, because both would have the same id.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: with ``on_bad="refuse"``, if a line is bad. The message lists the first 20 by line number.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no file of problems at {str(path)!r}")
    lines = path.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    rows = [(path.stem, f"{path.name}, line {i}", _decode(line)) for i, line in enumerate(lines, 1) if line.strip()]
    return _check_rows(rows, on_bad=on_bad, distinct=True)


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _check_rows(rows: Iterable[tuple[str, str, Any]], *, on_bad: str, distinct: bool) -> tuple[ReadProblem, ...]:
    one_of(get_args(OnBad), on_bad=on_bad)
    problems, bad = [], []
    first: dict[str, str] = {}
    for source, place, item in rows:
        reason = _objection(item)
        key = "" if reason else problem_key(item["nums"], item["target"])
        if reason or (distinct and key in first):
            bad.append(f"{place}: {reason or f'the problem of {first[key]} again'}")
        else:
            first[key] = place
            problems.append(ReadProblem(tuple(item["nums"]), item["target"], source))
    if bad:
        more = f"\n… and {len(bad) - _LISTED} more" if len(bad) > _LISTED else ""
        listed = "\n".join(bad[:_LISTED])
        if on_bad == "refuse":
            raise ValueError(f"{len(bad)} bad problems (on_bad=leave_out skips them):\n{listed}{more}")
        _LOG.warning("%d bad problems are left out:\n%s%s", len(bad), listed, more)
    return tuple(problems)


def _objection(item: Any) -> str:
    """The reason why an item is not a valid, solvable problem; empty if it is one."""
    if isinstance(item, Exception):
        return f"not valid JSON ({item})"
    if not isinstance(item, dict) or "nums" not in item or "target" not in item:
        return "needs the keys nums and target"
    numbers, target = item["nums"], item["target"]
    if not isinstance(numbers, list) or not 2 <= len(numbers) <= WIDTH:
        return f"nums must be a list of 2 to {WIDTH} integers"
    # not isinstance: true in JSON is an instance of int
    if any(type(number) is not int or not 0 <= number <= LARGEST for number in numbers):
        return f"nums must be integers from 0 to {LARGEST}"
    if type(target) is not int:
        return f"target must be an integer, got {target!r}"
    return "" if reachable(numbers, target) else unsolvable(numbers, target)


def longproc_scores(problem: Problem, completion: str) -> dict[str, float]:
    """Computes ``accuracy``, ``partial_accuracy`` and ``extraction_rate`` as LongProc does.

    A correct solution scores 1 in all three, for any search before it. Without one, the search is compared.

    Raises:
        ValueError: if the search must be compared and the target of the problem cannot be reached.
    """
    numbers, target = tuple(problem.fields["numbers"]), problem.fields["target"]
    start, close = completion.find(OPEN), completion.find(CLOSE)
    extracted = start >= 0 and close >= 0
    block = completion[start + len(OPEN) : close] if extracted else ""  # empty if the tags are in reverse order
    lines = block.strip().split("\n") if extracted and len(block) <= MAX_BLOCK else []
    if extracted and len(lines) == len(numbers) - 1:
        if _crashes(lines):
            return _scores(0.0, 0.0, 0.0)
        equations = [equation for equation in map(parse_equation, lines) if equation]
        if len(equations) == len(lines) and replay(numbers, target, equations) is None:
            return _scores(1.0, 1.0, 1.0)
    return _scores(0.0, _partial_accuracy(numbers, target, completion), float(extracted))


def _scores(accuracy: float, partial: float, extraction: float) -> dict[str, float]:
    return {"accuracy": accuracy, "partial_accuracy": partial, "extraction_rate": extraction}


def _crashes(lines: Sequence[str]) -> bool:
    """Whether LongProc's evaluation would raise an exception before it reaches a line that it rejects without one."""
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
    """Whether a text of at most ``MAX_LINE`` characters is not a Python expression. It is parsed, never executed."""
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
    """The index of the first line that differs from LongProc's search (else of the last one), over the number of its
    lines after the first one; 0 without a search."""
    _, header, written = completion.rpartition(WORDINGS["longproc"].header)
    if not header:
        return 0.0
    first, *expected = _reference_lines(numbers, target)
    written_first, *lines = written.strip().split("\n\n", 1)[0].split("\n")
    if written_first != first:
        return 0.0
    index = -1  # as in LongProc: the first line alone scores −1/n, and n equal lines score (n−1)/n
    for index, (ours, theirs) in enumerate(zip(lines, expected, strict=False)):  # noqa: B007
        if _action(ours) != _action(theirs):
            break
    return index / len(expected)


@lru_cache(maxsize=256)
def _reference_lines(numbers: tuple[int, ...], target: int) -> tuple[str, ...]:
    search = search_trace(numbers, target, style="longproc").text.split("\n\n", 1)[0]
    return tuple(search.split("\n")[1:])


def _action(line: str) -> tuple[str, bool]:
    """The parts of a line that LongProc compares: the text before ``=`` of a Try line, else the line; and whether it
    drops the branch."""
    tried = line.partition("=")[0] if line.lstrip(" ").startswith("|- Try ") else line
    return tried, "drop this branch" in line
