"""Rows: columns by dotted paths, and a set with every kind of malformed row, rejected by line or left out."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.answer import check_golds
from contrastive_reasoning.tasks.formats import PlainAnswer
from contrastive_reasoning.tasks.rows import (
    LISTED,
    BadRow,
    MissingColumn,
    ReadSet,
    WrittenFloat,
    read_set,
    text_at,
    value_at,
)
from datamodules.problem_rows import ProblemRows

ROW: dict[str, Any] = {"a": {"b": {"c": 1}}, "x.y": "dotted", "list": [1]}


def test_value_at_follows_dotted_path_and_text_at_returns_text() -> None:
    assert [value_at(ROW, column) for column in ("a.b.c", "a.b", "x.y")] == [1, {"c": 1}, "dotted"]
    for value, text in [
        (" 42 ", "42"),
        (3, "3"),
        (3.0, "3"),
        (2.5, "2.5"),
        (0, "0"),
        (True, "True"),
        ([0, 5], "[0, 5]"),
        (12345678901234567890123, "12345678901234567890123"),
        ([12345678901234567890123], "[12345678901234567890123]"),
        (WrittenFloat("2.50"), "2.50"),
        (WrittenFloat("1e2"), "100"),
        (WrittenFloat("12345678901234567890.5"), "12345678901234567890.5"),
    ]:
        assert text_at({"answer": value}, "answer") == text
    number = pickle.loads(pickle.dumps(WrittenFloat("2.50")))
    assert (number, str(number), f"{number}", number * 2) == (2.5, "2.50", "2.50", 5.0)
    with pytest.raises(BadRow, match="answer"):
        text_at({"answer": 12345678901234567890.5}, "answer")


@pytest.mark.parametrize("column", ["z", "a.z", "a.b.c.d", "list.0"])
def test_missing_column_error_lists_existing_columns(column: str) -> None:
    with pytest.raises(MissingColumn, match=r"a, x\.y, list") as error:
        value_at(ROW, column)
    assert error.value.column == column


PLAIN = PlainAnswer(question="question", answer="answer", instruction="")
GOOD = {"question": "How many?", "answer": 4}


def read_rows(path: Path, *, on_bad: str) -> ReadSet:
    rows = ProblemRows(path=str(path), subset=None, revision=None, split="train", file=None)
    return read_set(rows, PLAIN, prefix="set", check_golds=check_golds, on_bad=on_bad)


def read(path: Path, lines: Sequence[str | dict[str, Any]], *, on_bad: str) -> ReadSet:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return read_rows(path, on_bad=on_bad)


MALFORMED: list[tuple[str | dict[str, Any], str]] = [
    ({"question": "How many?"}, "no column answer; there are question"),
    ({"answer": 4}, "no column question; there are answer"),
    ({}, "no column question; there are none"),
    ({"question": "How many?", "answer": None}, "answer is empty"),
    ({"question": "How many?", "answer": " \n"}, "answer is empty"),
    ({"question": "", "answer": 4}, "question is empty"),
    ({"question": {"text": "How many?"}, "answer": 4}, "question is neither text nor a number but dict"),
    ({"question": ["How", "many?"], "answer": 4}, "question is neither text nor a number but list"),
    ({"question": "How many?", "answer": {"value": 4}}, "answer is neither text nor a number but dict"),
    ({"question": "How many?", "answer": []}, "answer is neither text nor a number but list"),
    ('{"question": "How many?", "answer": NaN}', "answer is nan"),
    ('{"question": "How many?", "answer": -Infinity}', "answer is -inf"),
    ('{"question": "How many?", "answer": 1e999}', "answer is 1e999"),
    ('{"question": "How many?", "answer": [1, NaN]}', "answer is [1, nan]"),
    ('{"question": "How \\ud800 many?", "answer": 4}', "question holds half a character"),
    ({"question": "How " * 30_000, "answer": 4}, "question has 119999 characters, and at most 100000 are read"),
    (
        '{"question": "How many?", "answer": [12345678901234567890123.0]}',
        "answer is [1.2345678901234568e+22], a float whose digits are not exact; write it as an integer or as text",
    ),
    ({"question": "How many?", "answer": "4" * 600}, "no gold answer"),
    ("[]", "no object of columns but list"),
]


def test_malformed_row_is_rejected_by_line_or_left_out(tmp_path: Path) -> None:
    path, (line, reason) = tmp_path / "set.jsonl", MALFORMED[0]
    rows = [GOOD, "", line, GOOD]
    with pytest.raises(ValueError, match=rf"set\.jsonl.*1 of 3 .*on_bad=leave_out.*line 3: {re.escape(reason)}"):
        read(path, rows, on_bad="refuse")
    assert [problem.id for problem in read(path, rows, on_bad="leave_out").problems] == ["set/0", "set/2"]


def test_read_set_lists_all_malformed_rows_and_reads_all_others(tmp_path: Path) -> None:
    mixed = [line for row, _ in MALFORMED for line in (GOOD, row)]
    found = read(tmp_path / "mixed.jsonl", mixed, on_bad="leave_out")
    clean = read(tmp_path / "clean.jsonl", [GOOD] * len(MALFORMED), on_bad="refuse")
    assert found.left_out == tuple(f"line {2 * n}: {reason}" for n, (_, reason) in enumerate(MALFORMED, start=1))
    assert [(p.prompt, p.answer) for p in found.problems] == [(p.prompt, p.answer) for p in clean.problems]
    with pytest.raises(ValueError, match=rf"19 of 38 .* {len(MALFORMED) - LISTED} more"):
        read(tmp_path / "mixed.jsonl", mixed, on_bad="refuse")


def test_column_missing_in_every_row_raises_for_any_on_bad(tmp_path: Path) -> None:
    for on_bad in ("refuse", "leave_out"):
        with pytest.raises(ValueError, match=r"set\.jsonl.*question.*problem"):
            read(tmp_path / "set.jsonl", [{"problem": "How many?"}] * 3, on_bad=on_bad)


def test_bad_row_of_table_is_named_by_row_number(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text('\ufeffquestion,answer\r\n"How\r\nmany?",4\r\nAnd now?,\r\n', newline="")
    found = read_rows(tmp_path / "set.csv", on_bad="leave_out")
    assert found.left_out == ("row 1: answer is empty",)
    assert len(found.problems) == 1
