from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.tiny import TinyArchitecture, tiny_model
from tests.tiny_models import tiny_llama


@pytest.mark.parametrize("text", ["21+16=37;", "Numbers: [1, 20]\n", "naïve 🙂 — ∑ \t\r\n", "", "<eos", "٣4"])
def test_tokenizer_round_trip_keeps_any_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text


def test_tokenizer_gives_each_digit_its_own_token(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.tokenize("21+1600") == ["2", "1", "+", "1", "6", "0", "0"]
    for token in tokenizer.get_vocab():
        assert sum(c.isdigit() for c in token) <= 1


def test_weights_depend_only_on_seed(tokenizer: PreTrainedTokenizerFast) -> None:
    first = tiny_llama(tokenizer, seed=3)
    state = torch.get_rng_state()
    torch.rand(7)
    second, other = tiny_llama(tokenizer, seed=3), tiny_llama(tokenizer, seed=4)
    weight = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(first.state_dict()[weight], second.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])
    torch.set_rng_state(state)
    before = torch.rand(3)
    torch.set_rng_state(state)
    tiny_llama(tokenizer, seed=9)
    assert torch.equal(before, torch.rand(3)), "building a model must not move the global random state"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"kind": "gpt"}, "kind"), ({"heads": 5}, "heads.*5.*hidden_size.*64")],
)
def test_invalid_architecture_raises(change: dict[str, object], message: str) -> None:
    size = {
        "kind": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "layers": 2,
        "heads": 4,
        "key_value_heads": 2,
        "max_length": 64,
        "vocab_size": 300,
    }
    with pytest.raises(ValueError, match=message):
        TinyArchitecture(**{**size, **change})  # pyright: ignore[reportArgumentType]


def test_tiny_model_fits_its_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    architecture = TinyArchitecture(
        kind="qwen2",
        hidden_size=32,
        intermediate_size=64,
        layers=1,
        heads=4,
        key_value_heads=1,
        max_length=64,
        vocab_size=300,
    )
    model = tiny_model(architecture, tokenizer, seed=0)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id
