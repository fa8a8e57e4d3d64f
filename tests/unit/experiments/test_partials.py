"""What a process that was killed while it wrote a file left beside it, and what such a rest is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from experiments.system.files import clear_partials, partial_of

KILLED_WHILE_IT_WRITES = """
    import os, signal, sys
    from pathlib import Path
    from experiments.system import files

    files.put_in_place = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    files.write_text(Path(sys.argv[1]), "half")
"""


def test_the_rest_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "tables" / "3.json"
    killed = [sys.executable, "-c", textwrap.dedent(KILLED_WHILE_IT_WRITES), str(path)]
    assert subprocess.run(killed, check=False).returncode == -signal.SIGKILL
    (rest,) = path.parent.iterdir()
    assert rest.name.startswith(".3.json.")
    clear_partials(tmp_path)
    assert list(path.parent.iterdir()) == []


def test_what_is_being_written_stays_and_so_does_every_other_name(tmp_path: Path) -> None:
    names = [f".3.json.{os.getppid()}", f".3.json.{10**30}", ".lock", "3.json", ".hidden.old", ".x.0", ".12"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / ".folder.999999").mkdir()
    clear_partials(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names, ".folder.999999"}


def test_what_bears_the_number_of_this_process_is_left_by_one_before_it(tmp_path: Path) -> None:
    """In a container, where each is the seventh, say; and pictures as well as texts."""
    partial_of(tmp_path / "3.png").write_text("half")
    clear_partials(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_folder_there_is_nothing_to_do(tmp_path: Path) -> None:
    clear_partials(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
