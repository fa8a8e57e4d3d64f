"""Conversion of a GGUF file of a tiny Llama, which this module writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_reasoning.policies.load import convert_gguf

HIDDEN, INNER, LAYERS, HEADS = 32, 64, 2, 2
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
QUANTISED = GGMLQuantizationType.Q4_1
SHAPES = {
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN, HIDDEN),
    "attn_v": (HIDDEN, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}


@pytest.fixture
def gguf_file(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """The file and its dequantised weights."""
    tokens = ["<unk>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "12"]
    weights: dict[str, np.ndarray] = {}
    writer = GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(0)

    def add(name: str, shape: tuple[int, ...]) -> None:
        packed = quantize(rng.standard_normal(shape, dtype=np.float32), QUANTISED)
        weights[name] = dequantize(packed, QUANTISED)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=QUANTISED)

    add("token_embd", (len(tokens), HIDDEN))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, dtype=np.float32))
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            add(f"blk.{layer}.{name}", shape)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "tiny.gguf", weights


def test_convert_gguf_writes_dense_weights_tokenizer_and_template(
    gguf_file: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    file, weights = gguf_file
    folder = tmp_path / "model"
    convert_gguf(file, folder, dtype="bfloat16")
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["dtype"], config.get("quantization_config")) == ("llama", "bfloat16", None)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = {
        "token_embd": model.model.embed_tokens.weight,
        "blk.1.attn_v": model.model.layers[1].self_attn.v_proj.weight,
        "blk.1.ffn_down": model.model.layers[1].mlp.down_proj.weight,
    }
    for name, weight in found.items():
        expected = torch.tensor(weights[name]).bfloat16().float()
        torch.testing.assert_close(weight.data, expected, rtol=0, atol=0, msg=name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token == "<|im_end|>"
    text = tokenizer.apply_chat_template([{"role": "user", "content": "12"}], tokenize=False)
    assert text == "<|im_start|>12<|im_end|>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
