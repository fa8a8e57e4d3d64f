"""Which checkpoint is gone on from: real files, cut off, flipped, removed and half written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.stages.checkpoints import (
    CheckpointError,
    Metric,
    clear,
    damage,
    forget,
    kept,
    newest_sound,
    path_of,
    seal,
)


def written(folder: Path, step: int, content: bytes = b"weights" * 100, metric: Metric | None = None) -> Path:
    path = path_of(folder, step)
    path.write_bytes(content)
    seal(path, step=step, metric=metric)
    return path


def shards(folder: Path, step: int) -> Path:
    path = path_of(folder, step)
    (path / "checkpoint").mkdir(parents=True)
    for rank in range(2):
        (path / "checkpoint" / f"rank_{rank}.pt").write_bytes(bytes([rank]) * 50)
    seal(path, step=step, metric=None)
    return path


def flip(path: Path, place: int = 7) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("written_by", [written, shards])
def test_one_that_is_gone_is_named(written_by: Callable[[Path, int], Path], tmp_path: Path) -> None:
    first, last = written_by(tmp_path, 1), written_by(tmp_path, 2)
    last.rename(tmp_path / "elsewhere")
    assert [one.step for one in kept(tmp_path)] == [1]
    found, (said,) = newest_sound(tmp_path)
    assert found == first
    assert str(last) in said
    assert "missing" in said
    first.rename(tmp_path / "elsewhere, too")
    with pytest.raises(CheckpointError, match="none is left to go on from"):
        newest_sound(tmp_path)
    clear(tmp_path, keep=[])
    assert newest_sound(tmp_path) == (None, [])


def test_the_newest_by_step_is_gone_on_from(tmp_path: Path) -> None:
    for step in (100, 9, 20):
        written(tmp_path, step)
    assert newest_sound(tmp_path) == (path_of(tmp_path, 100), [])
    assert [one.step for one in kept(tmp_path)] == [9, 20, 100]


def test_steps_are_numbers_not_words(tmp_path: Path) -> None:
    for step in (900_000, 1_200_000):
        written(tmp_path, step)
    assert newest_sound(tmp_path) == (path_of(tmp_path, 1_200_000), [])


def test_those_that_were_passed_over_are_neither_the_best_nor_the_last(tmp_path: Path) -> None:
    for step in (4, 5, 6):
        written(tmp_path, step)
    for step in (5, 6):
        flip(path_of(tmp_path, step))
    last, passed_over = newest_sound(tmp_path)
    assert (last, len(passed_over)) == (path_of(tmp_path, 4), 2)
    forget(tmp_path, after=last)
    assert [one.step for one in kept(tmp_path)] == [4]
    assert newest_sound(tmp_path)[0] == last


def test_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert newest_sound(tmp_path) == newest_sound(tmp_path / "none") == (None, [])


def test_a_flipped_bit_is_named_and_the_one_before_is_used(tmp_path: Path) -> None:
    first, second = written(tmp_path, 1), written(tmp_path, 2)
    flip(second)
    assert newest_sound(tmp_path) == (
        first,
        [f"checkpoint {second} is damaged: not what was written (sha256 differs)"],
    )


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    first, second = written(tmp_path, 1), written(tmp_path, 2)
    second.write_bytes(second.read_bytes()[:-1])
    assert newest_sound(tmp_path) == (first, [f"checkpoint {second} is damaged: 699 bytes, not 700"])


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"step": 1}', '{"step": 1, "files": {}, "metric": null}'])
def test_a_damaged_seal_is_a_damaged_checkpoint(tmp_path: Path, broken: str) -> None:
    first, second = written(tmp_path, 1), written(tmp_path, 2)
    second.with_name(second.name + ".seal").write_text(broken)
    found, said = newest_sound(tmp_path)
    assert (found, said) == (first, [f"checkpoint {second} cannot be judged, its seal {second.name}.seal is damaged"])
    assert [one.path for one in kept(tmp_path)] == [first]


def test_one_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    """Killed between its last byte and its seal; as the first one it leaves nothing to lose."""
    path_of(tmp_path, 5).write_bytes(b"half")
    sentence = f"checkpoint {path_of(tmp_path, 5)} was not written to its end"
    assert newest_sound(tmp_path) == (None, [sentence])
    first = written(tmp_path, 4)
    assert newest_sound(tmp_path) == (first, [sentence])


def test_where_all_are_damaged_nothing_is_begun_anew_in_silence(tmp_path: Path) -> None:
    for step in (1, 2):
        flip(written(tmp_path, step))
    with pytest.raises(CheckpointError, match=rf"step=000002.*step=000001.*none is left .* remove {tmp_path} to begin"):
        newest_sound(tmp_path)


def test_shards_are_sealed_file_by_file(tmp_path: Path) -> None:
    path = shards(tmp_path, 3)
    assert damage(path) is None
    flip(path / "checkpoint" / "rank_1.pt")
    assert damage(path) == (
        f"checkpoint {path / 'checkpoint' / 'rank_1.pt'} is damaged: not what was written (sha256 differs)"
    )
    (path / "checkpoint" / "rank_0.pt").unlink()
    assert damage(path) == f"checkpoint {path} lacks checkpoint/rank_0.pt"


def test_what_is_not_kept_goes_seal_and_all(tmp_path: Path) -> None:
    stay, go = written(tmp_path, 2), written(tmp_path, 1)
    folder = shards(tmp_path, 3)
    half = path_of(tmp_path, 4).with_suffix(".new")
    half.write_bytes(b"half")
    clear(tmp_path, keep=[stay])
    assert sorted(path.name for path in tmp_path.iterdir()) == [stay.name, f"{stay.name}.seal"]
    assert not go.exists()
    assert not folder.exists()


def test_a_seal_says_what_was_measured(tmp_path: Path) -> None:
    path = written(tmp_path, 2, metric=Metric(name="val/loss", value=0.25))
    assert [one.metric for one in kept(tmp_path)] == [Metric(name="val/loss", value=0.25)]
    said = json.loads(path.with_name(path.name + ".seal").read_text())
    assert said["files"][""]["bytes"] == 700
