"""The rows of a problem set: where they come from, and their columns by name or by dotted path."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, Protocol, runtime_checkable

LONGEST = 100_000
"""Characters of a question, an answer or a solution: ten times what the longest of the sets in use has."""
Row = Mapping[str, Any]
"""Column → value, nested columns as mappings."""


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


class MissingColumn(ValueError):
    """A column that a format reads and the row does not have."""

    def __init__(self, column: str, there: Row) -> None:
        super().__init__(f"no column {column}; there are {', '.join(map(str, there)) or 'none'}")
        self.column = column


class BadRow(ValueError):
    """A row without a question or an answer; the message is one clause."""


def value_at(row: Row, column: str) -> Any:
    """What stands in a column (``reward_model.ground_truth``); a column whose own name holds dots is found too.

    Raises:
        MissingColumn: where the row has no such column.
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
    """The column's value as text, without space around it: whole numbers without a decimal point, lists as they are.

    Raises:
        MissingColumn: where the row has no such column.
        BadRow: where nothing stands there, or what is neither a text nor a number nor a list of numbers.
    """
    return as_text(value_at(row, column), column)


def as_text(value: Any, column: str) -> str:
    """A value of a column as text: see :func:`text_at`."""
    if any(isinstance(number, float) and not math.isfinite(number) for number in _numbers(value)):
        raise BadRow(f"{column} is {value}")
    if not (_numbers(value) or isinstance(value, str | None)):
        raise BadRow(f"{column} is neither text nor a number but {type(value).__name__}")
    whole = isinstance(value, float) and value.is_integer()
    text = "" if value is None else str(int(value) if whole else value).strip()
    if not text:
        raise BadRow(f"{column} is empty")
    if len(text) > LONGEST:
        raise BadRow(f"{column} has {len(text)} characters, and at most {LONGEST} are read")
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadRow(f"{column} holds half a character")
    return text


def _numbers(value: Any) -> list[Any]:
    """The numbers that a value is or lists; none where it is or holds anything else."""
    found = value if isinstance(value, list) else [value]
    return found if all(isinstance(number, int | float | Decimal) for number in found) else []
