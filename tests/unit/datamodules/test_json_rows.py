"""Lines as editors, spreadsheets and killed programs leave them: each is a row, or says why it is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from datamodules.problem_rows import json_rows

ROW = {"question": "How many?", "answer": 4}
LINE = b'{"question": "How many?", "answer": 4}'


def read(path: Path, content: bytes) -> list[tuple[str, dict, str]]:
    path.write_bytes(content)
    return [(place, dict(row), flaw) for place, row, flaw in json_rows(path)]


@pytest.mark.parametrize(
    "content",
    [
        LINE + b"\n" + LINE + b"\n",
        LINE + b"\n" + LINE,
        LINE + b"\r\n" + LINE + b"\r\n",
        b"\xef\xbb\xbf" + LINE + b"\n" + LINE,
        b"  " + LINE + b" \t\r\n" + LINE,
    ],
)
def test_marks_and_line_ends_are_no_part_of_a_row(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "a.jsonl", content) == [("line 1", ROW, ""), ("line 2", ROW, "")]


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.jsonl", b"\n" + LINE + b"\n\n \r\n" + LINE + b"\n")
    assert [place for place, _, _ in rows] == ["line 2", "line 5"]


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        (b'{"question": "How', "not valid JSON (Unterminated string starting at)"),
        (b"{'question': 'How many?'}", "not valid JSON (Expecting property name enclosed in double quotes)"),
        (LINE + LINE, "not valid JSON (Extra data)"),
        (b'["How many?", 4]', "no object of columns but list"),
        (b"null", "no object of columns but NoneType"),
        (b'"{}"', "no object of columns but str"),
        ('{"question": "Combien coûte-t-il?"}'.encode("latin-1"), "not UTF-8"),
        (b"\x80\x04\x95", "not UTF-8"),
        (b"\x00\x00", "not valid JSON (Expecting value)"),
        (b'{"answer": 4, "answer": 5}', "names 'answer' twice"),
        (b'{"reward": {"truth": 4, "truth": 5}}', "names 'truth' twice"),
        (b'{"answer": ' + b"[" * 100_000 + b"}", "not valid JSON (too deep, or a number of too many digits)"),
        (b'{"answer": ' + b"9" * 5_000 + b"}", "not valid JSON (too deep, or a number of too many digits)"),
    ],
)
def test_a_line_that_is_no_row_says_why_and_the_others_are_read(tmp_path: Path, line: bytes, flaw: str) -> None:
    rows = read(tmp_path / "a.jsonl", LINE + b"\n" + line + b"\n" + LINE + b"\n")
    assert rows == [("line 1", ROW, ""), ("line 2", {}, flaw), ("line 3", ROW, "")]


def test_a_list_is_read_item_by_item(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.json", b"\xef\xbb\xbf [" + LINE + b",\n 5, " + LINE + b"]")
    assert rows == [("row 0", ROW, ""), ("row 1", {}, "no object of columns but int"), ("row 2", ROW, "")]


def test_a_torn_list_is_refused_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON \(Expecting ',' delimiter\)$"):
        read(tmp_path / "a.json", b"[" + LINE + b"\n")


def test_a_json_file_may_be_lines(tmp_path: Path) -> None:
    assert [row for _, row, _ in read(tmp_path / "a.json", LINE + b"\n" + LINE)] == [ROW, ROW]
