from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.embed import embed


def finished(folder: Path, *, stage: str = "warm_start", weights: int = 10) -> Path:
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "config.json").write_text("{}")
    (folder / "policy" / "model.safetensors").write_bytes(b"0" * weights)
    (folder / "config.yaml").write_text("seed: 3\n")
    result = {"stage": stage, "fingerprint": "abc", "versions": {"datamodules.plays": 1}, "code": {}, "seconds": 1.0}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_a_policy_is_embedded_with_what_made_it(tmp_path: Path) -> None:
    target = embed(finished(tmp_path / "stage"), "llama_countdown", room=tmp_path / "room")
    assert target == tmp_path / "room" / "llama_countdown"
    assert (target / "model.safetensors").stat().st_size == 10
    assert (target / "warm_start.yaml").read_text() == "seed: 3\n"
    origin = json.loads((target / "origin.json").read_text())
    assert origin["fingerprint"] == "abc"
    wanted = "make exp name=llama_baseline over='stages=[warm_start] policy.pretrained=null seed=3'"
    assert origin["command"] == wanted


@pytest.mark.parametrize("name", ["../precious", "/tmp/precious", "..", ".", ""])
def test_a_name_that_leaves_the_room_is_refused_and_nothing_there_is_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "room").mkdir()
    stage = finished(tmp_path / "stage")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"^NAME='"):
        embed(stage, name, room=tmp_path / "room")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_new_one_replaces_the_old_one(tmp_path: Path) -> None:
    embed(finished(tmp_path / "first"), "llama_countdown", room=tmp_path / "room")
    (tmp_path / "room" / "llama_countdown" / "left_over").write_text("old")
    target = embed(finished(tmp_path / "second", weights=20), "llama_countdown", room=tmp_path / "room")
    assert not (target / "left_over").exists()
    assert (target / "model.safetensors").stat().st_size == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [({"stage": "critic"}, "no policy of a finished warm start"), ({"weights": 5_000_001}, "has 5000003 bytes")],
)
def test_what_cannot_be_embedded_is_refused(tmp_path: Path, change: dict[str, int | str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embed(finished(tmp_path / "stage", **change), "x", room=tmp_path / "room")  # pyright: ignore
    with pytest.raises(ValueError, match="no policy"):
        embed(tmp_path, "x", room=tmp_path / "room")
