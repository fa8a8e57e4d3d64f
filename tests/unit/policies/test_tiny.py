from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.tiny_models import tiny_architecture, tiny_llama


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


@pytest.mark.parametrize(("change", "named"), [({"kind": "gpt"}, "kind"), ({"heads": 5}, "heads.*5.*hidden_size.*64")])
def test_invalid_architecture_raises(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        tiny_architecture(**change)
