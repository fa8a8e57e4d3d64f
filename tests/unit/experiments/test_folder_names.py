from __future__ import annotations

from pathlib import Path

import pytest

from experiments.folder_names import flaw, plain, plain_parts

OUTSIDE = [
    "..",
    "../x",
    "a/../../x",
    "/etc/x",
    "a/b",
    "a\\b",
    "C:x",
    "~/x/y",
    "x\x00",
    "\x00",
    "a\nb",
    "a\u202eb",
    "a\u200bb",
]
ODD = ["", " ", ".", ".hidden", " x", "x ", "x.", "a*b", "a?b", "a|b", "a<b", 'a"b', "\x7f", "\ud800", "x" * 101]


@pytest.mark.parametrize("name", OUTSIDE + ODD)
def test_what_is_no_plain_name_is_refused_in_one_line(name: str) -> None:
    assert flaw(name) is not None
    with pytest.raises(ValueError, match=r"^arm='") as refused:
        plain(name, what="arm")
    assert "\n" not in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    "name", ["llama_critic", "a b", "größe", "κ-2", "2026-01-01T00-00-00", "a+b", "x" * 100, "a,b", "a=b"]
)
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert plain(name, what="name") == name


@pytest.mark.parametrize("name", [*OUTSIDE[:4], "a//b", "/a", "a/", "a/.b", "val/../../x", "val/\x00"])
def test_each_part_of_a_name_of_parts_is_plain(name: str) -> None:
    with pytest.raises(ValueError, match=r"^table='"):
        plain_parts(name, what="table")


def test_a_name_of_plain_parts_stays_as_it_is() -> None:
    assert plain_parts("val/completions", what="table") == "val/completions"


def test_no_plain_name_leaves_its_folder(tmp_path: Path) -> None:
    """The sentence above by means of the file system itself."""
    home = tmp_path / "home"
    for name in OUTSIDE + ODD:
        if "\x00" in name or not name.isprintable():
            continue
        inside = (home / name).resolve().parent == home.resolve()
        assert inside or flaw(name) is not None
