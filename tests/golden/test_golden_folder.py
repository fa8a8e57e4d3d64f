"""A folder or file that cannot be compared raises an error, so that no test passes silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reading = tuple[Callable[[Path], None], Callable[..., list[dict[str, Any]]]]


def test_check_folder_rejects_folder_without_known_files(tmp_path: Path, golden_reading: Reading) -> None:
    check_folder, _ = golden_reading
    with pytest.raises(pytest.UsageError, match="no such folder"):
        check_folder(tmp_path / "absent")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(pytest.UsageError, match="holds none of"):
        check_folder(tmp_path)
    (tmp_path / "oracle.jsonl").touch()
    check_folder(tmp_path)


def test_read_rows_rejects_empty_and_broken_files(tmp_path: Path, golden_reading: Reading) -> None:
    _, read_rows = golden_reading
    files = {
        "empty.jsonl": ("\n", (), "empty.jsonl holds no rows"),
        "broken.jsonl": ('{"nums": [1, 2]}\n{"nums": ', (), "broken.jsonl, line 2 is not JSON"),
        "losses.json": ('{"a": {"b": [{"id": "x"}], "c": []}}', ("a", "c"), r"holds no rows under a\.c"),
    }
    for name, (text, keys, message) in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(pytest.UsageError, match=message):
            read_rows(tmp_path / name, *keys)
    assert read_rows(tmp_path / "losses.json", "a", "b") == [{"id": "x"}]
