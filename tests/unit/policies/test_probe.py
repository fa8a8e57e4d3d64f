"""Policies of many families compute what ``transformers`` computes, or are refused by name when they are loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.policies import causal_lm, probe
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, evaluating
from contrastive_reasoning.policies.load import LoRA, read_model_config
from contrastive_reasoning.policies.probe import check_passes, rows_of
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem
from tests.hf_engine import HFEngine
from tests.tiny_models import loaded_policy as load, tiny_policy
from tests.unit.policies.conftest import trained_tokenizer

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Qwen2": {"use_sliding_window": False},
    "Qwen3": {"head_dim": 8},
    "Mistral": {"sliding_window": 8},
    "Gemma2": {"head_dim": 8, "final_logit_softcapping": 2.0, "attn_logit_softcapping": 1.0},
    "Gemma3Text": {"head_dim": 8, "final_logit_softcapping": 2.0},
    "Cohere": {"logit_scale": 0.25},
    "Granite": {"logits_scaling": 4.0, "embedding_multiplier": 3.0, "attention_multiplier": 0.3},
    "HyperCLOVAX": {"logits_scaling": 0.25},
    "Olmo2": {},
    "SmolLM3": {},
    "DiffLlama": {},
    "StableLm": {},
    "Phi3": {},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "MiniCPM3": {**LATENT, "dim_model_base": 16},
    "Llama4Text": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "intermediate_size_mlp": 64},
    "Qwen3_5Text": {
        "layer_types": ["linear_attention", "full_attention"],
        "head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
    "Lfm2": {"layer_types": ["conv", "full_attention"]},
    "FalconH1": {
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 4,
        "lm_head_multiplier": 0.3,
    },
    "Mamba": {"state_size": 4},
    "MiniMax": {
        "layer_types": ["linear_attention", "full_attention"],
        "head_dim": 8,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
}
"""Family → settings with which it differs most from a Llama."""
PLANNED = {"Llama", "Qwen2", "Qwen3", "Cohere", "Granite", "HyperCLOVAX", "Olmo2", "SmolLM3", "Phi3"}
"""Families whose attention can be planned."""
UNPADDED = {"Mamba", "MiniMax"}
"""Families that take neither padding nor the cache of the others."""
QWEN_TOKENS = {"Qwen2", "Qwen3_5", "Qwen2_5_VL"}
"""Families with the special tokens of Qwen2; the others have those of Llama."""
GREEDY = Sampling(temperature=0.0, top_k=None, top_p=1.0, max_tokens=8, stop=[])


SMALL_VISION: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32}
QWEN_VISION: dict[str, Any] = {**SMALL_VISION, "depth": 1, "num_heads": 2, "out_hidden_size": 32}
WITH_IMAGES: dict[str, dict[str, Any]] = {
    "Gemma3": {
        "vision_config": {
            **SMALL_VISION,
            "image_size": 28,
            "patch_size": 14,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
        },
    },
    "Mistral3": {
        "vision_config": {
            **SMALL_VISION,
            "model_type": "pixtral",
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "head_dim": 8,
        },
        "text_config": {"model_type": "mistral", "tie_word_embeddings": False},
    },
    "Qwen3_5": {
        "vision_config": QWEN_VISION,
        "text_config": {"layer_types": ["full_attention", "full_attention"]},
    },
    "Qwen2_5_VL": {"vision_config": QWEN_VISION},
}
"""Family of models for text and images → settings of its configuration."""


def saved(family: str, folder: Path, **changes: Any) -> Path:
    """Saves a model with weights of a large spread, so that no part of it is close to the identity."""
    tokenizer = trained_tokenizer("qwen2" if family in QWEN_TOKENS else "llama")
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    settings = {**SIZES, **ids, "vocab_size": len(tokenizer), **FAMILIES.get(family, {}), **changes}
    if images := WITH_IMAGES.get(family):
        settings = {**images, "text_config": {**settings, "head_dim": 8, **images.get("text_config", {})}}
    auto = transformers.AutoModelForImageTextToText if images else transformers.AutoModelForCausalLM
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = auto.from_config(getattr(transformers, f"{family}Config")(**settings))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3) if parameter.ndim == 2 else None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def one_row_at_a_time(model: Any, policy: CausalLMPolicy, temperature: float = 1.0) -> Tensor:
    """Log-probs of the check's tokens by a model that this package did not touch."""
    rows = rows_of(policy)
    expected = torch.zeros(rows.mask.shape)
    for row, prompt in enumerate(rows.owner.tolist()):
        before, written = rows.prompt_ids[prompt][rows.prompt_mask[prompt]], rows.completion_ids[row][rows.mask[row]]
        logits = model(torch.cat([before, written])[None]).logits[0, len(before) - 1 : -1]
        scores = (logits / temperature).log_softmax(-1)
        expected[row, : len(written)] = scores.gather(-1, written[:, None])[:, 0]
    return expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:.*passes are slower:UserWarning")
def test_log_probs_and_greedy_tokens_match_transformers(family: str, tmp_path: Path) -> None:
    policy = load(saved(family, tmp_path))
    untouched = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert policy.plans_attention == (family in PLANNED)
    assert policy.unpadded == policy.without_weights().unpadded == (family in UNPADDED)
    rows = rows_of(policy)
    passes = [policy.unpadded_states]
    passes += [policy.padded_states] if family not in UNPADDED else []
    passes += [policy.packed_states] if family in PLANNED else []
    expected = {temperature: one_row_at_a_time(untouched, policy, temperature) for temperature in (1.0, 0.7)}
    for states, temperature in product(passes, expected):
        actual = policy.score_states(states(*rows.inputs).predicting, rows.completion_ids, rows.mask, temperature)
        assert_close(actual, expected[temperature], atol=1e-4, rtol=0)
    problems = [Problem(id=text, prompt=text, answer="") for text in ("3", "Numbers: [3, 4], target: 12\n")]
    ours = Engine(max_batch_tokens=1000).generate(policy, problems, group_size=2, sampling=GREEDY, seed=(0,))
    for row, problem in enumerate(problems):  # one at a time, since padding changes what transformers writes for some
        theirs = HFEngine(max_batch_tokens=1000).generate(policy, [problem], group_size=2, sampling=GREEDY, seed=(0,))
        mine = slice(2 * row, 2 * row + 2), slice(theirs.mask.shape[1])
        assert ours.mask[mine[0]].sum() == theirs.mask.sum()
        assert torch.equal(ours.completion_ids[mine], theirs.completion_ids)
        assert_close(ours.old_log_probs[mine], theirs.old_log_probs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", ["Gemma3", "Mistral3", "Qwen3_5"])
@pytest.mark.filterwarnings("ignore:.*passes are slower:UserWarning")
def test_text_model_of_a_model_for_images_matches_the_whole(family: str, tmp_path: Path) -> None:
    folder = saved(family, tmp_path / "whole")
    whole = transformers.AutoModelForImageTextToText.from_pretrained(folder)
    policy = load(folder)
    rows = rows_of(policy)
    states = policy.padded_states(*rows.inputs)
    actual = policy.score_states(states.predicting, rows.completion_ids, rows.mask, 1.0)
    assert_close(actual, one_row_at_a_time(whole, policy), atol=1e-4, rtol=0)
    assert not any("vis" in name for name, _ in policy.model.named_parameters())
    assert read_model_config(str(folder), trust_remote_code=False).max_position_embeddings == 256
    policy.save(tmp_path / "text")
    again = load(tmp_path / "text")
    assert all(map(torch.equal, again.model.state_dict().values(), policy.model.state_dict().values()))


@pytest.mark.filterwarnings("ignore:.*passes are slower:UserWarning")
@pytest.mark.parametrize(
    ("family", "settings", "named"),
    [
        ("Bert", {}, "Bert"),
        ("Rwkv", {"attention_hidden_size": 32}, "Rwkv"),
        ("DeepseekV3", LATENT | {"num_key_value_heads": 2}, r"DeepseekV3\w+ .* own forward pass fails"),
        ("Qwen2_5_VL", {}, r".*\(qwen2_5_vl\)"),
    ],
    ids=["encoder", "other generation", "own pass fails", "no text model"],
)
def test_family_that_cannot_be_used_is_refused_by_name(
    family: str, settings: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"policy\.pretrained={tmp_path}: {named}"):
        load(saved(family, tmp_path, **settings))


@pytest.mark.filterwarnings("ignore:.*passes are slower:UserWarning")
def test_unknown_change_of_logits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_lm, "logit_transform", lambda config: (1.0, None))
    with pytest.raises(ValueError, match=r"granite.*unpadded.* [\d.]+ nats"):
        load(saved("Granite", tmp_path))


def test_own_attention_replaces_plans_that_differ(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="DiffLlamaForCausalLM"):
        policy = load(saved("DiffLlama", tmp_path))
    assert not policy.plans_attention
    assert not policy.without_weights().plans_attention, "a copy for rollouts keeps it"


def nan(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *given: function(*given) * float("nan")


@pytest.mark.parametrize("broken", ["padded", "decoded"])
def test_pass_with_nan_is_not_used(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, broken, nan(getattr(probe, broken)))
    with pytest.warns(UserWarning, match=f"{broken} .*nan"):
        assert load(saved("Mistral", tmp_path)).unpadded


@pytest.mark.parametrize("broken", ["unpadded", "written"])
def test_slowest_pass_with_nan_is_refused(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("padded", broken):
        monkeypatch.setattr(probe, name, nan(getattr(probe, name)))
    with pytest.raises(ValueError, match=f"{broken} .*nan"):
        load(saved("Mistral", tmp_path))


def test_weights_with_nan_are_refused(tmp_path: Path) -> None:
    folder = saved("Mistral", tmp_path)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    model.save_pretrained(folder)
    with pytest.raises(ValueError, match="not finite"):
        load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"compute_dtype": "bfloat16"},
        {"weights_dtype": "bfloat16"},
        {"lora": LoRA(rank=2, alpha=4.0, dropout=0.1, target_modules="all-linear")},
        {"gradient_checkpointing": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_check_changes_neither_policy_nor_random_state(changes: dict[str, Any], tmp_path: Path) -> None:
    policy = load(saved("Llama", tmp_path), **changes)
    weights, modes = copy.deepcopy(policy.model.state_dict()), [part.training for part in policy.model.modules()]
    settings, state = dict(vars(policy)), torch.get_rng_state()
    check_passes(policy, "policy")
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in policy.model.modules()] == modes
    assert vars(policy) == settings
    assert policy.plans_attention
    assert all(torch.equal(weight, weights[name]) for name, weight in policy.model.state_dict().items())


@pytest.mark.filterwarnings("ignore:.*passes are slower:UserWarning")
@pytest.mark.parametrize("family", ["Gemma2", "Mamba", "Qwen3_5Text"])
def test_gradients_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    policy = load(saved(family, tmp_path))
    rows, model = rows_of(policy), copy.deepcopy(policy.model)
    given = rows.prompt_ids, rows.prompt_mask, rows.completion_ids, rows.mask
    policy.log_probs(*given, owner=rows.owner).sum().backward()
    own = tiny_policy(policy.tokenizer, model, compute_dtype=policy.compute_dtype)
    with evaluating(model):
        probe.own_log_probs(policy=own, rows=rows).sum().backward()
    for (name, weight), other in zip(policy.model.named_parameters(), model.parameters(), strict=True):
        assert_close(weight.grad, other.grad, atol=1e-4, rtol=1e-4, msg=name)
