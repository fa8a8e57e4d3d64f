from __future__ import annotations

import threading
from pathlib import Path

import pytest

from experiments.system.lock import announced_lock, lock


def test_a_held_lock_is_not_given_twice(tmp_path: Path) -> None:
    with lock(tmp_path / "lock") as first, lock(tmp_path / "lock", wait=False) as second:
        assert first
        assert not second
    with lock(tmp_path / "lock", wait=False) as third:
        assert third


def test_who_waits_is_told_and_comes_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def second() -> None:
        with announced_lock(tmp_path / "stage" / "lock", waiting="waiting for the other run"):
            order.append("second")

    with announced_lock(tmp_path / "stage" / "lock", waiting="never said"):
        other = threading.Thread(target=second)
        other.start()
        other.join(timeout=0.3)
        order.append("first")
    other.join(timeout=10)
    assert order == ["first", "second"]
    assert capsys.readouterr().out == "waiting for the other run\n"
