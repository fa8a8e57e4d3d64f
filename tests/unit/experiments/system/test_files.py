from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from experiments.system.files import (
    clear_partials,
    join_names,
    last_line,
    lock,
    name_flaw,
    partial_of,
    plain_path,
    quote_name,
)

OUTSIDE = ["..", "../x", "a/../../x", "/etc/x", "a/b", "a\\b", "C:x", "x\x00", "a\nb", "a\u202eb", "a\u200bb"]
ODD = ["", " ", ".", ".hidden", " x", "x ", "x.", "a*b", "a?b", "a|b", "a<b", 'a"b', "\x7f", "\ud800", "x" * 101]


def test_invalid_names_have_flaw_of_one_line() -> None:
    for name in OUTSIDE + ODD:
        flaw = name_flaw(name)
        assert flaw is not None, name
        assert f"{quote_name(name)} {flaw}".isprintable(), name
        assert len(f"{quote_name(name)} {flaw}") < 250
    for name in [*OUTSIDE[:4], *ODD, "a//b", "/a", "a/", "a/.b", "val/../../x", "val/\x00"]:
        with pytest.raises(ValueError, match=r"^table='") as error:
            plain_path(name, what="table")
        assert str(error.value).isprintable(), name


def test_plain_names_are_accepted() -> None:
    for name in ("llama_critic", "a b", "größe", "κ-2", "2026-01-01T00-00-00", "a+b", "x" * 100, "a,b", "a=b"):
        assert name_flaw(name) is None, name
    assert plain_path("val/completions", what="table") == "val/completions"


def test_join_names_returns_unique_valid_folder_name(tmp_path: Path) -> None:
    assert join_names(["llama_critic"]) == "llama_critic"
    assert join_names(["a", "b+c"]) == "a+b+c"
    many = [f"experiment_κ_{number}" for number in range(40)]
    lists = [many, many[:-1], [*many[:-1], "other"], many[::-1], ["+".join(many[:2]), *many[2:]], ["κ" * 100]]
    found = [join_names(names) for names in lists]
    assert len(set(found)) == len(found), "other names, another folder"
    assert join_names(list(many)) == found[0]
    assert found[0].startswith("experiment_κ_0+experiment_κ_1+")
    for name in found:
        assert len(name.encode()) <= 150
        (tmp_path / name).mkdir()


PIECES = ["..", ".", "/", "\\", "~", ":", "\x00", " ", "*", "\u202e", "C:", "a", "b", "é", "κ", "-", "_", "run", "0"]


def test_accepted_names_stay_inside_folder(tmp_path: Path) -> None:
    """Random names, mostly built from parts of paths, checked on the file system itself."""
    home = tmp_path.resolve() / "home"
    home.mkdir()
    chance = random.Random(0)
    drawn = ["".join(chance.choices(PIECES, k=chance.randint(1, 8))) for _ in range(20_000)]
    accepted = {name for name in drawn if name_flaw(name) is None}
    assert len(accepted) > 500
    for name in accepted:
        assert (home / name).resolve() == home / name, name
        (home / name).touch()
    assert {path.name for path in home.iterdir()} == accepted
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    several = [name for name in drawn if "/" in name and _is_plain_path(name)]
    assert len(several) > 100
    for name in several:
        assert (home / name).resolve().relative_to(home).as_posix() == name


def _is_plain_path(name: str) -> bool:
    try:
        return plain_path(name, what="table") == name
    except ValueError:
        return False


def test_held_lock_cannot_be_acquired_twice(tmp_path: Path) -> None:
    with lock(tmp_path / "lock") as first, lock(tmp_path / "lock", wait=False) as second:
        assert first
        assert not second
    with lock(tmp_path / "lock", wait=False) as third:
        assert third


def test_last_line_skips_blank_lines_and_has_default(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    for content, last in (
        (b"Traceback\n  ...\nValueError: x \n\n  \n", "ValueError: x"),
        (b"10 %\r20 %\r", "20 %"),
        (b"\xff", "\ufffd"),
        (b"\n \n", "nothing"),
        (b"", "nothing"),
    ):
        log.write_bytes(content)
        assert last_line(log, default="nothing") == last


KILLED_WHILE_IT_WRITES = """
    import os, signal, sys
    from pathlib import Path
    from experiments.system import files

    files.put_in_place = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    files.write_text(Path(sys.argv[1]), "half")
"""


def test_clear_partials_removes_file_of_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "tables" / "3.json"
    killed = [sys.executable, "-c", textwrap.dedent(KILLED_WHILE_IT_WRITES), str(path)]
    assert subprocess.run(killed, check=False).returncode == -signal.SIGKILL
    (rest,) = path.parent.iterdir()
    assert rest.name.startswith(".3.json.")
    clear_partials(tmp_path)
    assert list(path.parent.iterdir()) == []


def test_clear_partials_keeps_files_in_progress_and_other_names(tmp_path: Path) -> None:
    names = [f".3.json.{os.getppid()}", f".3.json.{10**30}", ".lock", "3.json", ".hidden.old", ".x.0", ".12"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / ".folder.999999").mkdir()
    # in a container, a process can have the same id as an earlier one
    partial_of(tmp_path / "left by one before this process, of its number.png").write_text("half")
    clear_partials(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names, ".folder.999999"}
    clear_partials(tmp_path / "none")
