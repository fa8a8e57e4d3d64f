from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from tests.unit.policies.conftest import COMPLETIONS, PROMPTS


def slow_log_probs(policy: CausalLMPolicy, prompt: str, completion: str, temperature: float) -> torch.Tensor:
    """One row at a time, no padding, full logits."""
    prompt_ids = policy.prompt_ids(prompt)
    ids = policy.encode_completions([completion])[0][0].tolist()
    logits = policy.model(torch.tensor([[*prompt_ids, *ids]])).logits[0] / temperature
    rows = logits[len(prompt_ids) - 1 : -1].log_softmax(-1)
    return torch.stack([row[i] for row, i in zip(rows, ids, strict=True)])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_equal_the_naive_pass(policy: CausalLMPolicy, temperature: float) -> None:
    prompt_ids, prompt_mask = policy.encode_prompts(PROMPTS)
    completion_ids, mask = policy.encode_completions(COMPLETIONS)
    actual = policy.log_probs(prompt_ids, prompt_mask, completion_ids, mask, temperature=temperature)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        expected = slow_log_probs(policy, prompt, completion, temperature)
        assert_close(actual[row][mask[row]], expected, atol=1e-5, rtol=0)
        assert not actual[row][~mask[row]].any()


def test_gradients_equal_the_naive_pass(policy: CausalLMPolicy) -> None:
    prompt_ids, prompt_mask = policy.encode_prompts(PROMPTS)
    completion_ids, mask = policy.encode_completions(COMPLETIONS)
    policy.log_probs(prompt_ids, prompt_mask, completion_ids, mask).sum().backward()
    got = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    policy.zero_grad()
    torch.cat([slow_log_probs(policy, p, c, 1.0) for p, c in zip(PROMPTS, COMPLETIONS, strict=True)]).sum().backward()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None
        assert_close(got[name], parameter.grad, atol=1e-4, rtol=1e-4, msg=name)


def test_saved_policy_is_an_ordinary_hugging_face_folder(policy: CausalLMPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path)
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
