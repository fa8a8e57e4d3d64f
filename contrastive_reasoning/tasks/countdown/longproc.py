"""LongProc's Countdown (arXiv:2501.05414): its files, a JSON-lines file of one's own, and its three scores.

Every problem that is read is checked; what is malformed or cannot be solved is listed by file and place, and refused or
left out.

The scores are numerically LongProc's own, by safe means, and not our verdict: LongProc reads the *first* ``<Solution>``
and ``</Solution>``, and compares the written search with its own line by line. Kept as they are: a perfect search
without a solution scores (n−1)/n of its n lines, the bare first line −1/n, results after ``=`` are not compared. Ours
differ only where LongProc's let rules be broken (negative numbers, results of 2000 and more, ``2_1``), and where its
evaluation of model text crashes: then all three are 0.
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

from contrastive_reasoning.tasks.base import Problem, check_choice
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.problem import problem_key
from contrastive_reasoning.tasks.countdown.prompt_file import user_prompt
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
    """Name of the file, without its ending."""

    @property
    def key(self) -> str:
        return problem_key(self.numbers, self.target)


def read_longproc(files: Sequence[Path], *, on_bad: str) -> tuple[ReadProblem, ...]:
    """The problems of LongProc's ``countdown_*.json``, file after file.

    Raises:
        ValueError: if a file is no JSON list, or with ``on_bad="refuse"`` if a problem is bad: all are listed.
    """
    rows: list[tuple[str, str, Any]] = []
    for file in files:
        items = _decoded(file.read_text(encoding="utf-8-sig", errors="replace"))
        if isinstance(items, Exception):
            raise ValueError(f"{file.name} is not valid JSON: {items}") from items
        if not isinstance(items, list):
            raise ValueError(f"{file.name} must hold a list of problems, got {type(items).__name__}")
        rows += [(file.stem, f"{file.name}, item {index}", item) for index, item in enumerate(items)]
    return _checked(rows, on_bad=on_bad, distinct=False)


def read_problem_lines(path: str | Path, *, on_bad: str) -> tuple[ReadProblem, ...]:
    """The problems of a JSON-lines file, ``{"nums": [21, 16, 17, 26], "target": 46}`` a line; empty lines are skipped.

    A problem that stands there twice is bad where it stands again: the second would have the id of the first.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: with ``on_bad="refuse"`` if a line is bad: all are listed by line number.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file of problems at {str(path)!r}")
    lines = path.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    rows = [(path.stem, f"{path.name}, line {i}", _decoded(line)) for i, line in enumerate(lines, 1) if line.strip()]
    return _checked(rows, on_bad=on_bad, distinct=True)


@lru_cache(maxsize=16)
def read_template(path: Path) -> str:
    """The prompt template ``USER_PROMPT`` of a ``prompts.yaml``: the one YAML form it uses, a literal block.

    Raises:
        ValueError: if it holds no such block, or the block lacks a placeholder.
    """
    template = user_prompt(path.read_text("utf-8"))
    missing = [name for name in ("{demonstration}", "{nums}", "{target}") if name not in template]
    if missing:
        raise ValueError(f"USER_PROMPT in {str(path)!r} must be a literal block (|-) with {', '.join(missing)}")
    return template


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _checked(rows: Iterable[tuple[str, str, Any]], *, on_bad: str, distinct: bool) -> tuple[ReadProblem, ...]:
    check_choice("on_bad", on_bad, get_args(OnBad))
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
    """Why an item is no problem to pose; empty if it is one."""
    if isinstance(item, Exception):
        return f"not valid JSON ({item})"
    if not isinstance(item, dict) or "nums" not in item or "target" not in item:
        return "needs the keys nums and target"
    numbers, target = item["nums"], item["target"]
    if not isinstance(numbers, list) or not 2 <= len(numbers) <= WIDTH:
        return f"nums must be a list of 2 to {WIDTH} integers"
    if any(type(number) is not int or not 0 <= number <= LARGEST for number in numbers):
        return f"nums must be integers from 0 to {LARGEST}"
    if type(target) is not int:
        return f"target must be an integer, got {target!r}"
    return "" if reachable(numbers, target) else unsolvable(numbers, target)


def longproc_scores(problem: Problem, completion: str) -> dict[str, float]:
    """``accuracy``, ``partial_accuracy`` and ``extraction_rate``, as LongProc computes them.

    A right solution scores 1 in all three, whatever the search before it; without one the search is compared.

    Raises:
        ValueError: when the search of a problem whose target cannot be reached would have to be compared.
    """
    numbers, target = tuple(problem.fields["numbers"]), problem.fields["target"]
    start, close = completion.find(OPEN), completion.find(CLOSE)
    extracted = start >= 0 and close >= 0
    block = completion[start + len(OPEN) : close] if extracted else ""  # empty if the tags are the other way round
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
    _, header, written = completion.rpartition(WORDINGS["longproc"].header)
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
