from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.embed import embed


def finished_stage(folder: Path, *, stage: str = "warm_start", weights: int = 10) -> Path:
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "config.json").write_text("{}")
    (folder / "policy" / "model.safetensors").write_bytes(b"0" * weights)
    (folder / "config.yaml").write_text("seed: 3\n")
    result = {"stage": stage, "fingerprint": "abc", "code": {}, "seconds": 1.0}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_embed_copies_policy_config_and_fingerprint(tmp_path: Path) -> None:
    target = embed(finished_stage(tmp_path / "stage"), "llama_countdown", folder=tmp_path / "embedded")
    assert target == tmp_path / "embedded" / "llama_countdown"
    assert (target / "model.safetensors").stat().st_size == 10
    assert (target / "warm_start.yaml").read_text() == "seed: 3\n"
    origin = json.loads((target / "origin.json").read_text())
    assert origin["fingerprint"] == "abc"


@pytest.mark.parametrize("name", ["../precious", "/tmp/precious", "..", ".", ""])
def test_embed_rejects_name_outside_folder_and_removes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "embedded").mkdir()
    stage = finished_stage(tmp_path / "stage")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"^NAME='"):
        embed(stage, name, folder=tmp_path / "embedded")
    assert sorted(tmp_path.rglob("*")) == before


def test_embed_replaces_earlier_policy_of_same_name(tmp_path: Path) -> None:
    embed(finished_stage(tmp_path / "first"), "llama_countdown", folder=tmp_path / "embedded")
    (tmp_path / "embedded" / "llama_countdown" / "left_over").write_text("old")
    target = embed(finished_stage(tmp_path / "second", weights=20), "llama_countdown", folder=tmp_path / "embedded")
    assert not (target / "left_over").exists()
    assert (target / "model.safetensors").stat().st_size == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [({"stage": "critic"}, "no policy of a finished warm start"), ({"weights": 5_000_001}, "has 5000003 bytes")],
)
def test_embed_rejects_other_stage_too_large_policy_and_missing_result(
    tmp_path: Path, change: dict[str, int | str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        embed(finished_stage(tmp_path / "stage", **change), "x", folder=tmp_path / "embedded")  # pyright: ignore
    with pytest.raises(ValueError, match="no policy"):
        embed(tmp_path, "x", folder=tmp_path / "embedded")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("llama_countdown", "name=llama_baseline over='"),
        ("llama_countdown_unaimed", "name=llama_baseline over='"),
        ("qwen_arithmetic", "name=qwen_baseline over='task=arithmetic "),
    ],
)
def test_embed_command_names_family_and_non_default_task(tmp_path: Path, name: str, arguments: str) -> None:
    target = embed(finished_stage(tmp_path / "stage"), name, folder=tmp_path / "embedded")
    expected = f"make exp {arguments}stages=[warm_start] policy.pretrained=null seed=3'"
    assert json.loads((target / "origin.json").read_text())["command"] == expected
