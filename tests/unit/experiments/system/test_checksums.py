from __future__ import annotations

from pathlib import Path

from experiments.system.checksums import BLOCK, STRIDE, content_hash, fingerprint


def test_key_order_does_not_matter_and_values_do() -> None:
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({"a": [1, 2]}) != fingerprint({"a": [2, 1]})
    assert len(fingerprint({})) == 12


def test_a_folder_is_its_names_and_contents(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    assert content_hash(first) == content_hash(second)
    (second / "config.json").write_text("{ }")
    assert content_hash(first) != content_hash(second)


def test_a_file_is_its_content_wherever_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(BLOCK * 70))
    marks = {content_hash(path)}
    for place in (0, STRIDE + 5, BLOCK * 70 - 1):
        content = bytearray(BLOCK * 70)
        content[place] = 1
        path.write_bytes(bytes(content))
        marks.add(content_hash(path))
    assert len(marks) == 4


def test_of_a_data_set_one_letter_counts(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    content = bytearray(b"a" * 3 * BLOCK)
    path.write_bytes(content)
    before = content_hash(path, stride=BLOCK), content_hash(path)
    content[BLOCK + 5] = ord("b")
    path.write_bytes(content)
    assert content_hash(path, stride=BLOCK) != before[0]
    assert content_hash(path) == before[1], "of weights a few MiB are read"
