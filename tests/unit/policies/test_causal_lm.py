from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from tests.unit.policies.conftest import PROMPTS


def test_saved_policy_is_an_ordinary_hugging_face_folder(policy: CausalLMPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    assert policy.plans_attention
    assert "planned" not in (tmp_path / "config.json").read_text(), "other processes do not know this attention"
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.bin"))
    assert tokenizer(PROMPTS[0], add_special_tokens=False)["input_ids"] == policy.prompt_ids(PROMPTS[0])[1:]
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


def test_mismatched_tokenizer_raises(policy: CausalLMPolicy) -> None:
    bigger = copy.deepcopy(policy.tokenizer)
    bigger.add_tokens(["<new>"])
    with pytest.raises(ValueError, match="tokenizer"):
        CausalLMPolicy(model=policy.model, tokenizer=bigger, compute_dtype=torch.float32, chat_template=False)
