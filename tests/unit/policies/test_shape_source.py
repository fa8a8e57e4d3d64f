from __future__ import annotations

import json
from pathlib import Path

import pytest

from contrastive_reasoning.policies.load import embedded_names
from contrastive_reasoning.policies.shape import QWEN_3B, find_shape

SIZES = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 136,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize("name", embedded_names())
def test_embedded_policies_are_read_from_their_own_folder(name: str) -> None:
    found = find_shape(f"embedded:{name}")
    assert found.shape.hidden_size == 192
    assert found.source.endswith(f"{name}/config.json")


def test_the_folder_of_a_stage_stands_for_its_policy(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text(json.dumps(SIZES))
    shape = find_shape(str(tmp_path)).shape
    assert (shape.hidden_size, shape.num_key_value_heads, shape.head_dim) == (64, 4, 16)


def test_a_published_name_needs_no_hub_and_says_so() -> None:
    found = find_shape("Qwen/Qwen2.5-3B-Instruct")
    assert (found.shape, found.source) == (QWEN_3B, "the table of published shapes")


def test_what_is_not_at_hand_is_answered_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"policy.pretrained=nobody/nothing: its shape is not at hand"):
        find_shape("nobody/nothing")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({key: value for key, value in SIZES.items() if key != "hidden_size"}))
    with pytest.raises(ValueError, match=r"config.json: hidden_size is missing"):
        find_shape(str(tmp_path))
