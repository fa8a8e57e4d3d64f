"""TextCritic over a tiny Llama and a tiny BERT, loaded from disk like any checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.testing import assert_close
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from contrastive_reasoning.critics import (
    Frozen,
    FullTraining,
    LoRATraining,
    TextCritic,
    load_critic_weights,
    load_encoder,
    save_critic,
)
from contrastive_reasoning.losses import dot
from contrastive_reasoning.policies.pooling import last_pool, mean_pool
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps, search_trace

CHARACTERS = ["<pad>", *"0123456789+-*/=;#: CurentSa[],>"]
LORA = LoRATraining(rank=2, alpha=4.0, dropout=0.0, target_modules=["q_proj", "v_proj"], seed=0)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per character."""
    characters = Tokenizer(models.WordLevel({c: i for i, c in enumerate(dict.fromkeys(CHARACTERS))}, unk_token="<pad>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=characters, pad_token="<pad>")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A causal language model and an encoder, each saved with the tokenizer."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": len(tokenizer()), "pad_token_id": 0}
    folders = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, model in {
            "llama": LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2)),
            "bert": BertModel(BertConfig(**sizes)),
        }.items():
            folders[name] = tmp_path_factory.mktemp(name)
            model.save_pretrained(folders[name])
            tokenizer().save_pretrained(folders[name])
    return folders


def build(folder: Path, *, training: Any = None, dtype: str = "float32", **changes: Any) -> TextCritic:
    how: dict[str, Any] = {"dtype": dtype, "training": training or FullTraining(), "trust_remote_code": False}
    settings: dict[str, Any] = {"pooling": last_pool, "dimension": 8, "similarity": dot, "max_length": 64, "seed": 0}
    settings |= {"style": "annotated", "goal_text": "### Current State: [{target}]"} | changes
    return TextCritic(encoder=load_encoder(pretrained=str(folder), **how), **settings).eval()


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("pooling", [last_pool, mean_pool])
def test_padding_does_not_change_encoding(checkpoints: dict[str, Path], name: str, pooling) -> None:
    critic = build(checkpoints[name], pooling=pooling)
    texts = ["21+16=37", "1+2=3;3*4=12;12-5=7"]
    together = critic.encode_state_action(critic.tokenize(texts))
    apart = torch.cat([critic.encode_state_action(critic.tokenize([text])) for text in texts])
    assert_close(together, apart, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_adapters_are_trained_in_fp32_whatever_the_dtype_of_the_backbone(
    checkpoints: dict[str, Path], dtype: str
) -> None:
    if dtype == "float16":
        with pytest.raises(ValueError, match="dtype=float16"):
            build(checkpoints["llama"], training=LORA, dtype=dtype)
        return
    critic = build(checkpoints["llama"], training=LORA, dtype=dtype).train()
    texts = critic.tokenize(["21+16=37", "1+2=3"])
    critic(texts, texts).sum().backward()
    trained = {name: weight for name, weight in critic.named_parameters() if weight.requires_grad}
    adapters = [weight for name, weight in trained.items() if "lora_" in name]
    assert len(adapters) == 8
    assert {weight.dtype for weight in trained.values()} == {torch.float32}
    assert all(weight.grad is not None for weight in adapters)
    assert {weight.dtype for name, weight in critic.named_parameters() if ".base_layer." in name} == {
        getattr(torch, dtype)
    }


@pytest.mark.parametrize("training", [FullTraining(), replace(LORA, target_modules="all-linear")])
def test_every_trained_weight_of_an_encoder_has_a_gradient(checkpoints: dict[str, Path], training: Any) -> None:
    """DDP refuses others, such as those of BERT's pooler, which critics do not read."""
    critic = build(checkpoints["bert"], training=training).train()
    texts = critic.tokenize(["21+16=37", "1+2=3"])
    critic(texts, texts).sum().backward()
    assert [name for name, weight in critic.named_parameters() if weight.requires_grad and weight.grad is None] == []


def test_encode_steps_returns_prefixes_and_goal_with_target(checkpoints: dict[str, Path]) -> None:
    critic = build(checkpoints["llama"])
    completion = "1+2=3;3*4=12"
    steps = [Step(start=0, end=5, state=(3, 4), legal=True), Step(start=6, end=12, state=(12,), legal=True)]
    state_actions, goals = critic.encode_steps(Problem(id="a", prompt="", answer="12"), completion, steps)
    expected = critic.tokenize(["1+2=3", "1+2=3;3*4=12"])
    assert torch.equal(state_actions["input_ids"], expected["input_ids"])
    assert torch.equal(goals["input_ids"], critic.tokenize(["### Current State: [12]"] * 2)["input_ids"])


def test_bare_moves_are_encoded_as_search_trace(checkpoints: dict[str, Path]) -> None:
    critic = build(checkpoints["llama"], max_length=1000)
    problem = CountdownProblem((21, 16, 17, 26), 46, style="direct")
    completion = "21+16=37;1+1=3;37-17=20;20+26=46"
    steps = [step for step in parse_steps(problem, completion) if step.legal]
    expected = [
        "<Search Procedure>\nInitial number set: [21, 16, 17, 26], target: 46\n"
        "Pick two numbers (21, 16) (numbers left: [17, 26]). Try possible operations. "
        "### Current State: [21, 16, 17, 26]\n"
        "|- Try 21 + 16 = 37. Add 37 to the number set. Current number set: [37, 17, 26], target: 46. "
        "Options for choosing two numbers: [(37, 17), (37, 26), (17, 26)]. ### Current State: [37, 17, 26]"
    ]
    expected.append(
        expected[0] + "\nPick two numbers (37, 17) (numbers left: [26]). Try possible operations. "
        "### Current State: [37, 17, 26]\n"
        "|- Try 37 - 17 = 20. Add 20 to the number set. Current number set: [20, 26], target: 46, "
        "just two numbers left. ### Current State: [20, 26]"
    )
    expected.append(expected[1] + "\n|- Try 26 + 20 = 46. Evaluate 46 == 46, target! ### Current State: [46]")
    state_actions, _ = critic.encode_steps(problem, completion, steps)
    assert torch.equal(state_actions["input_ids"], critic.tokenize(expected)["input_ids"])


def test_written_search_is_encoded_unchanged(checkpoints: dict[str, Path]) -> None:
    critic = build(checkpoints["llama"], max_length=5000)
    problem = CountdownProblem((21, 16, 17), 20, style="annotated")
    completion = search_trace(problem.numbers, problem.target, style="annotated").text
    steps = [step for step in parse_steps(problem, completion) if step.legal]
    state_actions, _ = critic.encode_steps(problem, completion, steps)
    expected = critic.tokenize([completion[: step.end] for step in steps])
    assert torch.equal(state_actions["input_ids"], expected["input_ids"])


def test_invalid_byte_is_encoded_as_replacement_character(checkpoints: dict[str, Path]) -> None:
    critic = build(checkpoints["llama"])
    completion = "\udc80 1+2=3"
    step = Step(start=2, end=len(completion), state=(3,), legal=True)
    state_actions, _ = critic.encode_steps(Problem(id="a", prompt="", answer="3"), completion, [step])
    assert torch.equal(state_actions["input_ids"], critic.tokenize(["\ufffd 1+2=3"])["input_ids"])


def test_text_without_tokens_and_goal_text_without_target_raise(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"text 1 .*''"):
        build(checkpoints["llama"]).tokenize(["1", ""])
    with pytest.raises(ValueError, match=r"goal_text.*'done'"):
        build(checkpoints["bert"], goal_text="done")


@pytest.mark.parametrize(("training", "trained"), [(FullTraining(), True), (Frozen(), False), (LORA, False)])
def test_training_mode_selects_weights_with_gradients(checkpoints: dict[str, Path], training, trained: bool) -> None:
    critic = build(checkpoints["llama"], training=training)
    critic(critic.tokenize(["1+2=3"]), critic.tokenize(["[3]"])).sum().backward()
    learning = {name for name, parameter in critic.named_parameters() if parameter.grad is not None}
    assert {"state_action_projection.weight", "goal_projection.weight"} <= learning
    assert any("lora_" in name for name in learning) == (training is LORA)
    assert ("backbone.embed_tokens.weight" in learning) == trained


@pytest.mark.parametrize("training", [FullTraining(), Frozen(), LORA])
def test_save_load_round_trip_keeps_values(checkpoints: dict[str, Path], tmp_path: Path, training) -> None:
    saved = build(checkpoints["llama"], training=training)
    with torch.no_grad():
        for parameter in saved.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    save_critic(saved, tmp_path, {})
    loaded = build(checkpoints["llama"], training=training).requires_grad_(False)
    load_critic_weights(loaded, tmp_path)
    state_actions, goals = saved.tokenize(["1+2=3"]), saved.tokenize(["[3]"])
    assert_close(loaded(state_actions, goals), saved(state_actions, goals).detach())
    frozen_is_left_out = (tmp_path / "critic.safetensors").stat().st_size < 8_000
    assert frozen_is_left_out == (not isinstance(training, FullTraining))
