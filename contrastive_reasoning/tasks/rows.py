"""The rows of a problem set: where they come from, their columns by name, and the problems that they make.

Rows that cannot be posed or scored are refused, or left out, with their places and reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from contrastive_reasoning.tasks.base import Problem, check_choice

LONGEST = 100_000
"""Characters of a question, an answer or a solution: ten times what the longest of the sets in use has."""
Row = Mapping[str, Any]
"""Column → value, nested columns as mappings."""
OnBad = Literal["refuse", "leave_out"]
CheckGolds = Callable[[Sequence[str]], list[tuple[int, str]]]
"""Gold answers → those that do not verify themselves, by index, with the reason."""
LISTED = 10
"""Rows that an error names."""


class PlacedRow(NamedTuple):
    """A row, and where somebody who opens the file finds it."""

    place: str
    """``line 18`` of a file of lines, counted from 1; ``row 17`` of a table, counted from 0."""
    row: Row
    flaw: str = ""
    """Why nothing can be read there, one clause; empty for a row."""


@runtime_checkable
class Rows(Protocol):
    """Where the rows of a set come from. Light: nothing is read before it is called."""

    @property
    def source(self) -> str:
        """What error messages call it: a hub's name, or a path."""
        ...

    def at(self, path: str) -> Rows:
        """The same set, read from a local file or folder."""
        ...

    def __call__(self) -> Iterable[PlacedRow]: ...


@runtime_checkable
class Format(Protocol):
    """How a row becomes a problem; a MissingColumn where it lacks a column, a BadRow where it cannot be used."""

    def __call__(self, row: Row, *, id: str) -> Problem: ...


class MissingColumn(ValueError):
    """A column that a format reads and the row does not have."""

    def __init__(self, column: str, there: Row) -> None:
        super().__init__(f"no column {column}; there are {', '.join(map(str, there)) or 'none'}")
        self.column = column


class BadRow(ValueError):
    """A row without a question or an answer; the message is one clause."""


class ReadSet(NamedTuple):
    """What a set holds."""

    problems: tuple[Problem, ...]
    left_out: tuple[str, ...]
    """``line 18: answer is empty``, one per row that is no problem."""


def read_set(rows: Rows, format: Format, *, prefix: str, check_golds: CheckGolds, on_bad: str) -> ReadSet:
    """Read every row. A problem's id is ``prefix/row``, so that equal rows are problems of their own.

    A format may put an id of the row's own there; two rows with the same one are no two problems.

    Raises:
        ValueError: where no row has the columns that the format reads, for a set without problems, or, with
            ``on_bad="refuse"``, for rows that cannot be read, lack a question or an answer, or hold something else
            there, and for golds that do not verify themselves.
    """
    check_choice("on_bad", on_bad, get_args(OnBad))
    posed: dict[int, Problem] = {}
    places_of: dict[str, str] = {}
    bad: dict[int, str] = {}
    places: list[str] = []
    lacking: MissingColumn | None = None
    for index, (place, row, flaw) in enumerate(rows()):
        places.append(place)
        try:
            if flaw:
                raise BadRow(flaw)
            problem = format(row, id=f"{prefix}/{index}")
            if (first := places_of.setdefault(problem.id, place)) != place:
                raise BadRow(f"its id {problem.id.removeprefix(prefix + '/')!r} is already that of {first}")
            posed[index] = problem
        except MissingColumn as error:
            lacking, bad[index] = lacking or error, str(error)
        except BadRow as error:
            bad[index] = str(error)
    if lacking and not posed:  # it is not the rows that are wrong
        raise ValueError(f"{rows.source}: {lacking}") from lacking
    kept = list(posed)
    for place, reason in check_golds([problem.answer for problem in posed.values()]):
        bad[kept[place]] = reason
    left_out = [f"{places[index]}: {bad[index]}" for index in sorted(bad)]
    more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
    listed = "; ".join(left_out[:LISTED]) + more
    if len(bad) == len(places):
        raise ValueError(f"{rows.source}: no problem in its {len(places)} rows" + (f" ({listed})" if bad else ""))
    if bad and on_bad == "refuse":
        unusable = f"{len(bad)} of {len(places)} rows cannot be used (on_bad=leave_out skips them)"
        raise ValueError(f"{rows.source}: {unusable}: {listed}")
    return ReadSet(tuple([problem for index, problem in posed.items() if index not in bad]), tuple(left_out))


def value_at(row: Row, column: str) -> Any:
    """What stands in a column (``reward_model.ground_truth``); a column whose own name holds dots is found too."""
    if column in row:
        return row[column]
    here: Any = row
    for name in column.split("."):
        if not isinstance(here, Mapping) or name not in here:
            raise MissingColumn(column, row)
        here = here[name]
    return here


def text_at(row: Row, column: str) -> str:
    """The column's value as text, without space around it: whole numbers without a decimal point, lists as they are.

    Raises:
        MissingColumn: where the row has no such column.
        BadRow: where nothing stands there, or what is neither a text nor a number nor a list of numbers.
    """
    return as_text(value_at(row, column), column)


def as_text(value: Any, column: str) -> str:
    """A value of a column as text: see :func:`text_at`."""
    listed: list[Any] = value if isinstance(value, list) else [value]
    numbers = listed if all(isinstance(number, int | float | Decimal) for number in listed) else []
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise BadRow(f"{column} is {value}")
    if not (numbers or isinstance(value, str | None)):
        raise BadRow(f"{column} is neither text nor a number but {type(value).__name__}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    if not text:
        raise BadRow(f"{column} is empty")
    if len(text) > LONGEST:
        raise BadRow(f"{column} has {len(text)} characters, and at most {LONGEST} are read")
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadRow(f"{column} holds half a character")
    return text
