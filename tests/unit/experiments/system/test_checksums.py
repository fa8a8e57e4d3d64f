from __future__ import annotations

from pathlib import Path

from experiments.system.checksums import BLOCK, STRIDE, content_hash, fingerprint


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


def test_content_hash_samples_blocks_unless_stride_is_block(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    hashes, whole = set(), set()
    for place in (None, 0, STRIDE + 5, BLOCK * 70 - 1, 3 * BLOCK):
        content = bytearray(BLOCK * 70)
        content[place or 0] = int(place is not None)
        path.write_bytes(content)
        hashes.add(content_hash(path))
        whole.add(content_hash(path, stride=BLOCK))
    assert (len(hashes), len(whole)) == (4, 5)
