"""Saving and loading a critic, and the errors for saved critics that do not match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from contrastive_reasoning.critics import NumericV1, NumericV2, load_critic_weights, save_critic
from contrastive_reasoning.losses import dot
from tests.hostile.trap import pickled


def numeric(kind: type, *, seed: int = 0, hidden_layers: int = 1, dimension: int = 8) -> nn.Module:
    sizes = {"digit_dimension": 2, "hidden_dimension": 8, "hidden_layers": hidden_layers, "dimension": dimension}
    return kind(**sizes, similarity=dot, seed=seed)


def test_critic_save_load_round_trip(tmp_path: Path) -> None:
    saved, loaded = numeric(NumericV2, seed=0), numeric(NumericV2, seed=1)
    save_critic(saved, tmp_path / "critic", {"dimension": 8})
    load_critic_weights(loaded, tmp_path / "critic")
    for name, weight in saved.state_dict().items():
        assert torch.equal(weight, loaded.state_dict()[name])
    assert json.loads((tmp_path / "critic" / "critic.json").read_text())["config"] == {"dimension": 8}


def test_load_keeps_weights_that_were_frozen_at_save(tmp_path: Path) -> None:
    saved, loaded = numeric(NumericV2, seed=0), numeric(NumericV2, seed=1)
    before = loaded.get_parameter("array_digits.table.weight").clone()
    saved.get_submodule("array_digits").requires_grad_(False)
    save_critic(saved, tmp_path, {})
    load_critic_weights(loaded.requires_grad_(False), tmp_path)
    assert torch.equal(loaded.get_parameter("array_digits.table.weight"), before)
    assert torch.equal(loaded.get_parameter("goal_head.0.weight"), saved.get_parameter("goal_head.0.weight"))


@pytest.mark.parametrize(
    ("saved", "loaded", "named"),
    [
        ({"kind": NumericV1}, {}, "NumericV1.*NumericV2"),
        ({"hidden_layers": 1}, {"hidden_layers": 2}, r"goal_head\.4\.bias"),
        ({"hidden_layers": 2}, {"hidden_layers": 1}, r"goal_head\.4\.bias"),
        ({"dimension": 8}, {"dimension": 9}, r"\(8.*\(9"),
    ],
)
def test_mismatched_critic_raises_and_keeps_weights(
    tmp_path: Path, saved: dict[str, Any], loaded: dict[str, Any], named: str
) -> None:
    save_critic(numeric(**{"kind": NumericV2, **saved}), tmp_path, {})
    critic = numeric(**{"kind": NumericV2, **loaded})
    before = {name: weight.clone() for name, weight in critic.state_dict().items()}
    with pytest.raises(ValueError, match=named):
        load_critic_weights(critic, tmp_path)
    assert all(torch.equal(weight, before[name]) for name, weight in critic.state_dict().items())


@pytest.mark.parametrize("name", ["critic.safetensors", "critic.json"])
def test_pickle_as_critic_file_raises_and_is_not_executed(tmp_path: Path, name: str) -> None:
    folder, canary = tmp_path / "critic", tmp_path / "canary"
    save_critic(numeric(NumericV2), folder, {})
    (folder / name).write_bytes(pickled(canary))
    with pytest.raises(ValueError, match=name):
        load_critic_weights(numeric(NumericV2), folder)
    assert not canary.exists()


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"class": 1, "frozen": []}', '{"class": "a", "frozen": [1]}'])
def test_invalid_critic_json_raises(tmp_path: Path, text: str) -> None:
    save_critic(numeric(NumericV2), tmp_path, {})
    (tmp_path / "critic.json").write_text(text)
    with pytest.raises(ValueError, match=r"critic\.json"):
        load_critic_weights(numeric(NumericV2), tmp_path)
