"""What a format does: one row of a file becomes a problem. And what may be wrong with a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from contrastive_reasoning.tasks.base import Problem

Row = Mapping[str, Any]
"""Column → value, nested columns as mappings."""


@runtime_checkable
class Format(Protocol):
    """How problems stand in rows. Formats are named by what they read, not by the sets that use them."""

    def __call__(self, row: Row, *, id: str) -> Problem:
        """The row's problem under this id, its prompt with the instruction in it once.

        Raises:
            MissingColumn: where the row lacks a column: so do all others, the mapping is wrong.
            BadRow: where this row cannot be posed or scored.
        """
        ...


class MissingColumn(ValueError):
    """A column that the format reads and the row does not have."""

    def __init__(self, column: str, there: Row) -> None:
        super().__init__(f"no column {column}; there are {', '.join(map(str, there)) or 'none'}")
        self.column = column


class BadRow(ValueError):
    """A row without a question or an answer; the message is one clause."""
