"""Reads problems: LongProc's ``countdown_*.json`` and prompt template, or a JSON-lines file of one's own.

Every problem is checked; what is malformed or cannot be solved is listed by file and place, and refused or left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from contrastive_reasoning.tasks.countdown.encoding import LARGEST, WIDTH
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.problem import problem_key

OnBad = Literal["refuse", "leave_out"]
_LISTED = 20


class ReadProblem(NamedTuple):
    numbers: tuple[int, ...]
    target: int
    source: str
    """Name of the file, without its ending."""


class ReadProblems(NamedTuple):
    """What a file or folder holds."""

    problems: tuple[ReadProblem, ...]
    left_out: tuple[str, ...]
    """One sentence per bad problem, with its file and place."""


def read_longproc(folder: str | Path, *, on_bad: str) -> ReadProblems:
    """The problems of every ``countdown_*.json`` of a folder, in order of the file names.

    Raises:
        FileNotFoundError: if the folder holds no such file.
        ValueError: if a file is no JSON list, or with ``on_bad="refuse"`` if a problem is bad: all are listed.
    """
    files = sorted(Path(folder).glob("countdown_*.json"))
    if not files:
        raise FileNotFoundError(f"no countdown_*.json in longproc_dir={str(folder)!r}")
    return _checked([row for file in files for row in _rows_of_json(file)], on_bad=on_bad)


def read_problem_lines(path: str | Path, *, on_bad: str) -> ReadProblems:
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


def read_template(folder: str | Path) -> str:
    """The prompt template ``USER_PROMPT`` of a folder's ``prompts.yaml``: the one YAML form it uses, a literal block.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no such block, or the block lacks a placeholder.
    """
    path = Path(folder) / "prompts.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"no prompts.yaml in longproc_dir={str(folder)!r}")
    template = _literal_block(path.read_text(encoding="utf-8"), key="USER_PROMPT")
    missing = [name for name in ("{demonstration}", "{nums}", "{target}") if name not in template]
    if missing:
        raise ValueError(f"USER_PROMPT in {str(path)!r} must be a literal block (|-) with {', '.join(missing)}")
    return template


def _literal_block(text: str, *, key: str) -> str:
    """The block under ``key: |-`` with its indentation removed; empty if there is none."""
    lines = text.split("\n")
    starts = [index for index, line in enumerate(lines) if line.rstrip() == f"{key}: |-"]
    if not starts:
        return ""
    block = []
    for line in lines[starts[0] + 1 :]:
        if line.strip() and not line.startswith(" "):
            break
        block.append(line)
    indent = min([len(line) - len(line.lstrip(" ")) for line in block if line.strip()], default=0)
    return "\n".join([line[indent:] for line in block]).rstrip("\n")


def _rows_of_json(file: Path) -> list[tuple[str, str, Any]]:
    try:
        items = json.loads(file.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file.name} is not valid JSON: {error}") from error
    if not isinstance(items, list):
        raise ValueError(f"{file.name} must hold a list of problems, got {type(items).__name__}")
    return [(file.stem, f"{file.name}, item {index}", item) for index, item in enumerate(items)]


def _decoded(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return error


def _checked(rows: Iterable[tuple[str, str, Any]], *, on_bad: str, distinct: bool = False) -> ReadProblems:
    if on_bad not in get_args(OnBad):
        raise ValueError(f"on_bad must be one of {', '.join(get_args(OnBad))}, got {on_bad!r}")
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
    if bad and on_bad == "refuse":
        more = f"\n… and {len(bad) - _LISTED} more" if len(bad) > _LISTED else ""
        listed = "\n".join(bad[:_LISTED])
        raise ValueError(f"{len(bad)} bad problems (on_bad=leave_out skips them):\n{listed}{more}")
    return ReadProblems(tuple(problems), tuple(bad))


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
    return "" if reachable(numbers, target) else f"the numbers {numbers} do not reach the target {target}"
