"""Columns by name, nested ones by a dotted path: ``reward_model.ground_truth``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contrastive_reasoning.tasks.formats.base import BadRow, MissingColumn, Row


def value_at(row: Row, column: str) -> Any:
    """What stands in a column; a column whose own name holds dots is found too.

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
    """The column's value as text, without space around it: whole numbers without a decimal point.

    Raises:
        MissingColumn: where the row has no such column.
        BadRow: where nothing stands there.
    """
    value = value_at(row, column)
    whole = isinstance(value, float) and value.is_integer()
    text = "" if value is None else str(int(value) if whole else value).strip()
    if not text:
        raise BadRow(f"{column} is empty")
    return text
