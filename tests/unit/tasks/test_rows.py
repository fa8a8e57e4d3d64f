"""Columns by dotted paths, and what is said where one is missing or empty."""

from __future__ import annotations

from typing import Any

import pytest

from contrastive_reasoning.tasks.rows import BadRow, MissingColumn, text_at, value_at

ROW: dict[str, Any] = {
    "a": {"b": {"c": 1}},
    "x.y": "dotted",
    "text": "  kept \n",
    "none": None,
    "blank": " ",
    "list": [1],
}


def test_a_dotted_path_goes_inwards() -> None:
    assert value_at(ROW, "a.b.c") == 1
    assert value_at(ROW, "a.b") == {"c": 1}
    assert value_at(ROW, "x.y") == "dotted"


@pytest.mark.parametrize("column", ["z", "a.z", "a.b.c.d", "list.0"])
def test_a_missing_column_is_named_with_those_there_are(column: str) -> None:
    with pytest.raises(MissingColumn, match=r"there are a, x\.y, text, none, blank, list") as error:
        value_at(ROW, column)
    assert error.value.column == column


@pytest.mark.parametrize(
    ("value", "text"), [(" 42 ", "42"), (3, "3"), (3.0, "3"), (2.5, "2.5"), (0, "0"), (True, "True")]
)
def test_values_as_text(value: Any, text: str) -> None:
    assert text_at({"answer": value}, "answer") == text


@pytest.mark.parametrize("column", ["none", "blank"])
def test_nothing_is_refused(column: str) -> None:
    with pytest.raises(BadRow, match=f"{column} is empty"):
        text_at(ROW, column)
