"""Work that is watched from one beat to the next."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import pytest

from contrastive_reasoning.progress import Heartbeat


def test_a_silence_is_named_with_where_every_thread_stands(tmp_path: Path) -> None:
    path = tmp_path / "stacks" / "rank0.txt"
    with (
        Heartbeat(path, what="evaluation", limit=0.2) as heart,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        heart.beat("of start")
        time.sleep(0.15)
        heart.beat("of test, after 3 problems,")
        time.sleep(0.6)
    (sentence,) = [str(warning.message) for warning in said]
    assert sentence == (
        f"evaluation of test, after 3 problems, has lasted longer than 0.2 s; where every thread stands: {path}"
    )
    assert "test_a_silence_is_named" in path.read_text()


def test_work_that_moves_leaves_nothing_however_long_it_lasts(tmp_path: Path) -> None:
    path = tmp_path / "rank0.txt"
    with warnings.catch_warnings(), Heartbeat(path, what="evaluation", limit=0.4) as heart:
        warnings.simplefilter("error")
        for _ in range(60):
            heart.beat("of test")
            time.sleep(0.02)
    assert not path.exists()


def test_what_begins_anew_is_named_however_soon_it_comes(tmp_path: Path) -> None:
    with (
        Heartbeat(tmp_path / "rank0.txt", what="evaluation", limit=0.4) as heart,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        heart.beat("of start, after 3 problems,")
        heart.beat("of start, after 4 problems,")
        heart.beat("of test", always=True)
        time.sleep(0.8)
    assert [str(warning.message).partition(" has ")[0] for warning in said] == ["evaluation of test"]


def test_without_a_limit_nothing_is_watched(tmp_path: Path) -> None:
    with Heartbeat(tmp_path / "stacks" / "rank0.txt", what="evaluation", limit=None) as heart:
        heart.beat("of test")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("limit", [0.0, -1.0])
def test_a_limit_is_positive(tmp_path: Path, limit: float) -> None:
    with pytest.raises(ValueError, match="the limit of evaluation must be positive"):
        Heartbeat(tmp_path / "rank0.txt", what="evaluation", limit=limit)
