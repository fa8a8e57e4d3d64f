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
    result = {"stage": stage, "fingerprint": "abc", "code": {}, "seconds": 1.0}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_a_policy_is_embedded_with_what_made_it(tmp_path: Path) -> None:
    target = embed(finished(tmp_path / "stage"), "llama_countdown", folder=tmp_path / "embedded")
    assert target == tmp_path / "embedded" / "llama_countdown"
    assert (target / "model.safetensors").stat().st_size == 10
    assert (target / "warm_start.yaml").read_text() == "seed: 3\n"
    origin = json.loads((target / "origin.json").read_text())
    assert origin["fingerprint"] == "abc"


@pytest.mark.parametrize("name", ["../precious", "/tmp/precious", "..", ".", ""])
def test_a_name_that_leaves_the_folder_is_refused_and_nothing_there_is_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "embedded").mkdir()
    stage = finished(tmp_path / "stage")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"^NAME='"):
        embed(stage, name, folder=tmp_path / "embedded")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_new_one_replaces_the_old_one(tmp_path: Path) -> None:
    embed(finished(tmp_path / "first"), "llama_countdown", folder=tmp_path / "embedded")
    (tmp_path / "embedded" / "llama_countdown" / "left_over").write_text("old")
    target = embed(finished(tmp_path / "second", weights=20), "llama_countdown", folder=tmp_path / "embedded")
    assert not (target / "left_over").exists()
    assert (target / "model.safetensors").stat().st_size == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [({"stage": "critic"}, "no policy of a finished warm start"), ({"weights": 5_000_001}, "has 5000003 bytes")],
)
def test_what_cannot_be_embedded_is_refused(tmp_path: Path, change: dict[str, int | str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embed(finished(tmp_path / "stage", **change), "x", folder=tmp_path / "embedded")  # pyright: ignore
    with pytest.raises(ValueError, match="no policy"):
        embed(tmp_path, "x", folder=tmp_path / "embedded")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama_countdown", "name=llama_baseline over='"),
        ("llama_countdown_unaimed", "name=llama_baseline over='"),
        ("qwen_arithmetic", "name=qwen_baseline over='task=arithmetic "),
    ],
)
def test_the_command_names_the_family_and_a_task_that_is_not_the_default(tmp_path: Path, name: str, said: str) -> None:
    target = embed(finished(tmp_path / "stage"), name, folder=tmp_path / "embedded")
    wanted = f"make exp {said}stages=[warm_start] policy.pretrained=null seed=3'"
    assert json.loads((target / "origin.json").read_text())["command"] == wanted
