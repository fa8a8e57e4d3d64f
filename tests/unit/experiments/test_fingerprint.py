from __future__ import annotations

from pathlib import Path

from experiments.fingerprint import fingerprint, folder_hash


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
    assert folder_hash(first) == folder_hash(second)
    (second / "config.json").write_text("{ }")
    assert folder_hash(first) != folder_hash(second)
