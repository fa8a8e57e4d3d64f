from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.system import checksums
from experiments.system.checksums import content_hash, fingerprint


def test_fingerprint_depends_on_values_not_on_key_order() -> None:
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({"a": [1, 2]}) != fingerprint({"a": [2, 1]})


def test_content_hash_of_folder_depends_on_names_and_contents(tmp_path: Path) -> None:
    hashes = []
    for folder, name, text in (("a", "x", "{}"), ("b", "x", "{}"), ("c", "x", "{ }"), ("d", "y", "{}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
        hashes.append(content_hash(tmp_path / folder))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_content_hash_reads_every_byte(tmp_path: Path) -> None:
    path, size = tmp_path / "weights", 36 * 2**20
    hashes = set()
    for place in (None, 0, size // 2 + 5, size - 1):
        content = bytearray(size)
        content[place or 0] = int(place is not None)
        path.write_bytes(content)
        hashes.add(content_hash(path))
    assert len(hashes) == 4


def test_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "weights", list[Path]()
    original = checksums._sha256
    monkeypatch.setattr(checksums, "_sha256", lambda path: read.append(path) or original(path))

    def write(content: bytes, seconds: int) -> str:
        path.write_bytes(content)
        os.utime(path, (seconds, seconds))
        return content_hash(path)

    first = write(b"1", 1_000_000_000)
    assert (content_hash(path), len(read)) == (first, 1)
    assert (write(b"2", 1_000_000_001) != first, len(read)) == (True, 2)
    path.write_bytes(b"3")  # just now, so that a second change may have the same time
    assert content_hash(path) == content_hash(path)
    assert len(read) == 4
