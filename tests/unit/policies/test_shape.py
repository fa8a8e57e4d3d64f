"""Shapes compared with real models on the meta device, and with published numbers of parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, Qwen2Config
from transformers.models.llama import LlamaForCausalLM
from transformers.models.qwen2 import Qwen2ForCausalLM

from contrastive_reasoning.policies.load import embedded_names
from contrastive_reasoning.policies.shape import PUBLISHED, QWEN_3B, ModelShape, find_shape

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 136,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def build_model(kind: str, **sizes: Any) -> Any:
    config, model = (Qwen2Config, Qwen2ForCausalLM) if kind == "qwen2" else (LlamaConfig, LlamaForCausalLM)
    with torch.device("meta"):
        return model(config(**SIZES | sizes))


def count_parameters(model: Any, *, trained: bool = False) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trained)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("sizes", [{"tie_word_embeddings": True}, {"tie_word_embeddings": False}])
def test_parameter_counts_equal_those_of_model(kind: str, sizes: dict[str, Any]) -> None:
    model = build_model(kind, **sizes)
    shape = ModelShape.of(model.config.to_dict())
    assert shape.parameters == count_parameters(model)
    assert shape.parameter_sizes() == [parameter.numel() for parameter in model.parameters()]


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]])
def test_adapter_parameters_equal_those_of_peft(targets: Any) -> None:
    model = build_model("qwen2")
    shape = ModelShape.of(model.config.to_dict())
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
    assert shape.adapter_parameters(4, targets) == count_parameters(adapted, trained=True)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400),
        ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
        ("Qwen/Qwen2.5-1.5B", 1_543_714_304),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("microsoft/rho-math-1b-v0.1", 1_100_048_384),
    ],
)
def test_published_shapes_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    assert PUBLISHED[name].parameters == parameters


def test_find_shape_reads_folder_or_table_of_published_names() -> None:
    for name in embedded_names():
        found = find_shape(f"embedded:{name}")
        assert found.shape.hidden_size == 192
        assert found.source.endswith(f"{name}/config.json")
    found = find_shape("Qwen/Qwen2.5-3B-Instruct")
    assert (found.shape, found.source) == (QWEN_3B, "the table of published shapes")


def test_unsupported_unknown_or_incomplete_model_or_adapter_target_raises(tmp_path: Path) -> None:
    llama = {"model_type": "llama", **SIZES}
    (tmp_path / "config.json").write_text(json.dumps({key: llama[key] for key in llama if key != "hidden_size"}))
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: ModelShape.of(SIZES | {"model_type": "mamba"}), r"mamba.*llama, qwen2"),
        (lambda: ModelShape.of(SIZES | {"model_type": "qwen2", "use_sliding_window": True}), "use_sliding_window"),
        (lambda: ModelShape.of(llama).adapter_parameters(4, ["query"]), r"lora\.target_modules.*'query'.*q_proj"),
        (lambda: find_shape("nobody/nothing"), r"policy\.pretrained=nobody/nothing"),
        (lambda: find_shape(str(tmp_path)), r"config\.json.*hidden_size"),
    ]
    for call, named in calls:
        with pytest.raises(ValueError, match=named):
            call()
