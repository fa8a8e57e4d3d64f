"""Ranks of one run wait for another run of a stage, all of them, however long it takes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from contrastive_reasoning.distributed import this_rank
from experiments.stages import experiment as stages
from experiments.system.files import lock
from tests.two_ranks import on_ranks

ARRIVED, RELEASED = "arrived", "released"


def inside(folder: Path) -> bool:
    """Whether the other run had ended when this rank was let in."""
    stages.ASKING_SECONDS = 0.05
    (folder / f"{ARRIVED}{this_rank()}").touch()
    with stages.held_by_first(folder / "stage" / "lock", waiting="waiting"):
        return (folder / RELEASED).exists()


@pytest.mark.whole
def test_every_rank_waits_until_the_first_has_the_lock(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def other_run() -> None:
        while len(list(tmp_path.glob(f"{ARRIVED}*"))) < 2:
            time.sleep(0.05)
        time.sleep(0.5)
        (tmp_path / RELEASED).touch()
        free.set()

    free = threading.Event()
    path = tmp_path / "stage" / "lock"
    path.parent.mkdir()

    def holding() -> None:
        with lock(path):
            held.set()
            free.wait()

    held = threading.Event()
    threads = [threading.Thread(target=one, daemon=True) for one in (holding, other_run)]
    threads[0].start()
    held.wait()
    threads[1].start()
    assert on_ranks(inside, tmp_path, tmp_path) == [True, True]
    assert capfd.readouterr().out.count("waiting") == 1
