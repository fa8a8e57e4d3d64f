"""A folder that cannot be compared is an error, never a silent pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reading = tuple[Callable[[Path], None], Callable[..., list[dict[str, Any]]]]


def test_a_folder_without_known_files_is_refused(tmp_path: Path, golden_reading: Reading) -> None:
    check_folder, _ = golden_reading
    with pytest.raises(pytest.UsageError, match="no such folder"):
        check_folder(tmp_path / "absent")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(pytest.UsageError, match="holds none of"):
        check_folder(tmp_path)
    (tmp_path / "oracle.jsonl").touch()
    check_folder(tmp_path)


def test_a_file_without_rows_is_refused(tmp_path: Path, golden_reading: Reading) -> None:
    _, read_rows = golden_reading
    files = {
        "empty.jsonl": ("\n", (), "empty.jsonl holds no rows"),
        "broken.jsonl": ('{"nums": [1, 2]}\n{"nums": ', (), "broken.jsonl, line 2 is not JSON"),
        "losses.json": ('{"a": {"b": [{"id": "x"}], "c": []}}', ("a", "c"), r"holds no rows under a\.c"),
    }
    for name, (text, keys, words) in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(pytest.UsageError, match=words):
            read_rows(tmp_path / name, *keys)
    assert read_rows(tmp_path / "losses.json", "a", "b") == [{"id": "x"}]
