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


@pytest.mark.parametrize(
    ("text", "words"),
    [("\n", "oracle.jsonl holds no rows"), ('{"nums": [1, 2]}\n{"nums": ', "oracle.jsonl, line 2 is not JSON")],
)
def test_a_file_without_rows_is_refused(tmp_path: Path, golden_reading: Reading, text: str, words: str) -> None:
    _, read_rows = golden_reading
    path = tmp_path / "oracle.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(pytest.UsageError, match=words):
        read_rows(path)


def test_rows_of_a_json_file_lie_under_keys(tmp_path: Path, golden_reading: Reading) -> None:
    _, read_rows = golden_reading
    path = tmp_path / "losses.json"
    path.write_text('{"a": {"b": [{"id": "x"}], "c": []}}', encoding="utf-8")
    assert read_rows(path, "a", "b") == [{"id": "x"}]
    with pytest.raises(pytest.UsageError, match=r"holds no rows under a\.c"):
        read_rows(path, "a", "c")
