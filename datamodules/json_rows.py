"""The rows of a local JSON file one by one: what is no row is said to be none, and those around it are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contrastive_reasoning.tasks.read_set import PlacedRow

ENDINGS = (".jsonl", ".json")
BOM = b"\xef\xbb\xbf"


class _Twice(ValueError):
    """An object that names a key twice: which of the values is meant?"""


def json_rows(path: Path) -> Iterator[PlacedRow]:
    """Every row of a file of JSON lines, or of one JSON list (``.json`` alone); empty lines are none.

    A byte order mark and any kind of line end are passed over. A line that is not UTF-8, no JSON or no object, or that
    names a key twice, is a row without columns, with that as its flaw.

    Raises:
        ValueError: for a list that cannot be read, of which no row can be told from another.
    """
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(BOM).lstrip()
        file.seek(0)
        if path.suffix == ".json" and head.startswith(b"["):
            yield from _items(file.read())
            return
        for number, line in enumerate(file, start=1):
            content = (line.removeprefix(BOM) if number == 1 else line).strip()
            if content:
                yield _row(f"line {number}", content)


def _items(content: bytes) -> Iterator[PlacedRow]:
    items, flaw = _decoded(content)
    if flaw or not isinstance(items, list):
        raise ValueError(flaw or "no JSON list")
    for index, item in enumerate(items):
        yield _checked(f"row {index}", item)


def _row(place: str, content: bytes) -> PlacedRow:
    value, flaw = _decoded(content)
    return PlacedRow(place, {}, flaw) if flaw else _checked(place, value)


def _checked(place: str, value: Any) -> PlacedRow:
    if isinstance(value, dict):
        return PlacedRow(place, value)
    return PlacedRow(place, {}, f"no object of columns but {type(value).__name__}")


def _decoded(content: bytes) -> tuple[Any, str]:
    """What a text of JSON says, or why it says nothing."""
    try:
        return json.loads(content.removeprefix(BOM).decode("utf-8"), object_pairs_hook=_once), ""
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except _Twice as error:
        return None, str(error)
    except json.JSONDecodeError as error:
        return None, f"not valid JSON ({error.msg})"
    except (ValueError, RecursionError):  # a number of more digits than Python reads, or lists in lists
        return None, "not valid JSON (too deep, or a number of too many digits)"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(f"names {next(name for name in names if names.count(name) > 1)!r} twice")
    return found
