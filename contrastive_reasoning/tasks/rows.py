"""The rows of a problem set: where they come from, access to their columns, and how they become problems.

Rows that cannot be posed or scored raise an error or are left out, with their places and reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from contrastive_reasoning.ranges import one_of
from contrastive_reasoning.tasks.base import Problem

LONGEST = 100_000
"""Maximum number of characters of a question, an answer or a solution: ten times the longest in the sets in use."""
EXACT = 2**53
"""Floats from here on do not hold every whole number: a reader has rounded the digits of the file."""
Row = Mapping[str, Any]
"""Maps column names to values; nested columns are mappings."""
OnBad = Literal["refuse", "leave_out"]
CheckGolds = Callable[[Sequence[str]], list[tuple[int, str]]]
"""Maps gold answers to (index, reason) of those that do not verify themselves."""
LISTED = 10
"""The most rows that an error message lists."""


class WrittenFloat(float):
    """A float whose text is that of its file: ``2.50``, or more digits than a float holds."""

    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[WrittenFloat], tuple[str]]:
        return WrittenFloat, (self.text,)


class PlacedRow(NamedTuple):
    """A row and its place in the file."""

    place: str
    """``line 18`` of a file of lines, counted from 1; ``row 17`` of a table, counted from 0."""
    row: Row
    flaw: str = ""
    """One clause on why the row cannot be read; empty if it can."""


@runtime_checkable
class Rows(Protocol):
    """The source of a set's rows. Nothing is read before it is called."""

    @property
    def source(self) -> str:
        """The name used in error messages: a name on the hub, or a path."""
        ...

    def at(self, path: str) -> Rows:
        """The same set, read from a local file or folder."""
        ...

    def __call__(self) -> Iterable[PlacedRow]: ...


@runtime_checkable
class Format(Protocol):
    """Converts a row to a problem. Raises MissingColumn if a column is missing, BadRow if the row cannot be used."""

    def __call__(self, row: Row, *, id: str) -> Problem: ...


class MissingColumn(ValueError):
    """Raised if a row lacks a column that a format reads."""

    def __init__(self, column: str, there: Row) -> None:
        super().__init__(f"no column {column}; there are {', '.join(map(str, there)) or 'none'}")
        self.column = column


class BadRow(ValueError):
    """Raised for a row that cannot be used, for example without a question or an answer; the message is one clause."""


class ReadSet(NamedTuple):
    """The problems of a set and the rows that were left out."""

    problems: tuple[Problem, ...]
    left_out: tuple[str, ...]
    """One entry per row that is not a usable problem, such as ``line 18: answer is empty``."""


def read_set(rows: Rows, format: Format, *, prefix: str, check_golds: CheckGolds, on_bad: str) -> ReadSet:
    """Reads every row. A problem's id is ``prefix/row``, so that equal rows are distinct problems.

    A format may use the row's own id instead. A row that repeats the id of an earlier one is bad.

    Raises:
        ValueError: if no row has the columns that the format reads, or the set has no problems. With
            ``on_bad="refuse"`` also if a row cannot be read, has no usable question or answer, repeats an id, or has a
            gold answer that does not verify itself.
    """
    one_of(get_args(OnBad), on_bad=on_bad)
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
    if lacking and not posed:  # the format does not match the set; the rows themselves are not at fault
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
    """The value of a column, nested ones by a dotted path (``reward_model.ground_truth``).

    A column whose own name contains dots takes precedence. Raises MissingColumn if there is no such column.
    """
    if column in row:
        return row[column]
    here: Any = row
    for name in column.split("."):
        if not isinstance(here, Mapping) or name not in here:
            raise MissingColumn(column, row)
        here = here[name]
    return here


def text_at(row: Row, column: str) -> str:
    """The column's value as text without surrounding whitespace. Whole numbers have no decimal point.

    A list of numbers becomes its Python representation.

    Raises:
        MissingColumn: if the row has no such column.
        BadRow: if the value is empty, too long, not finite, or neither a text nor a number nor a list of numbers.
    """
    return as_text(value_at(row, column), column)


def as_text(value: Any, column: str) -> str:
    """Converts the value of a column to text; see :func:`text_at`."""
    listed: list[Any] = value if isinstance(value, list) else [value]
    numbers = listed if all(isinstance(number, int | float | Decimal) for number in listed) else []
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise BadRow(f"{column} is {value}")
    if not (numbers or isinstance(value, str | None)):
        raise BadRow(f"{column} is neither text nor a number but {type(value).__name__}")
    rounded = [number for number in numbers if isinstance(number, float) and not isinstance(value, WrittenFloat)]
    if any(abs(number) >= EXACT for number in rounded):
        raise BadRow(f"{column} is {value}, a float whose digits are not exact; write it as an integer or as text")
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        value = int(value)
    text = "" if value is None else str(value).strip()
    if not text:
        raise BadRow(f"{column} is empty")
    if len(text) > LONGEST:
        raise BadRow(f"{column} has {len(text)} characters, and at most {LONGEST} are read")
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadRow(f"{column} holds half a character")
    return text
