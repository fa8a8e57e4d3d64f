from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig, BertModel, LlamaConfig

from contrastive_reasoning.critics import Frozen, load_encoder
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA, embedded_names, native_dtype, resolve
from contrastive_reasoning.policies.varlen import check_heads, require_flash
from tests.tiny_models import loaded_policy, tiny_architecture

ARCHITECTURE = tiny_architecture(
    hidden_size=32, intermediate_size=64, layers=1, key_value_heads=2, max_length=64, vocab_size=300
)
ALL_LINEAR = LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules="all-linear")
CORPUS = ["Numbers: [1, 2], target: 3\n", "2+1=3"]


def load(pretrained: str | None = None, **changes: Any) -> CausalLMPolicy:
    return loaded_policy(pretrained, **{"architecture": ARCHITECTURE, "corpus": lambda: CORPUS} | changes)


def test_saved_policy_loads_with_equal_weights(tmp_path: Path) -> None:
    fresh = load()
    fresh.save(tmp_path)
    again = load(pretrained=str(tmp_path))
    for name, weight in fresh.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight), name
    assert again.prompt_ids("Numbers") == fresh.prompt_ids("Numbers")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"pretrained": "./nowhere"}, FileNotFoundError, "policy.pretrained=./nowhere"),
        ({"pretrained": "embedded:none_such"}, ValueError, "'none_such'"),
        ({"architecture": None}, ValueError, "policy.architecture"),
        ({"kernels": "cuda"}, ValueError, "policy.kernels.*'cuda'"),
        ({"attention": "flash"}, ValueError, "policy.attention.*'flash'"),
        ({"compute_dtype": "int8"}, ValueError, "policy.compute_dtype.*'int8'"),
    ],
)
def test_load_policy_rejects_invalid_settings(changes: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(**changes)


@pytest.mark.parametrize(
    ("capability", "dtype", "named"),
    [(None, torch.bfloat16, "CUDA"), ((7, 5), torch.bfloat16, "CUDA"), ((9, 0), torch.float32, "compute_dtype")],
)
def test_varlen_attention_needs_a_gpu_and_half_precision(
    capability: tuple[int, int] | None, dtype: torch.dtype, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with pytest.raises(ValueError, match=f"policy.attention=varlen.*{named}"):
        require_flash(dtype)


@pytest.mark.parametrize(("heads", "plans", "named"), [(8, True, "width of 4"), (4, False, "other attention")])
def test_varlen_attention_needs_heads_that_its_kernel_takes(heads: int, plans: bool, named: str) -> None:
    with pytest.raises(ValueError, match=f"policy.attention=varlen.*{named}"):
        check_heads(LlamaConfig(hidden_size=32, num_attention_heads=heads), plans=plans)
    check_heads(LlamaConfig(hidden_size=32, num_attention_heads=4), plans=True)


@pytest.mark.parametrize("processor", [True, False])
@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [([(8, 0)], "bfloat16"), ([(9, 0)] * 2, "bfloat16"), ([(7, 5)], "float32"), ([(8, 6), (7, 0)], "float32")],
)
def test_native_dtype_is_that_of_the_named_device(
    capabilities: list[tuple[int, int]], dtype: str, processor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that is elsewhere is assumed to multiply in bfloat16."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: processor)
    of_processor = "bfloat16" if processor else "float32"
    for here, expected in ((True, dtype), (False, "bfloat16")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda here=here: here)
        assert (native_dtype("cuda"), native_dtype("cpu")) == (expected, of_processor)


@pytest.mark.parametrize(("processor", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_automatic_dtype_is_the_native_one(
    processor: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: processor)
    assert load(compute_dtype="auto").compute_dtype == dtype


def test_resolve_finds_policy_of_run_or_stage_folder(tmp_path: Path) -> None:
    stages = tmp_path / "outputs" / "stages"
    run_folder = tmp_path / "outputs" / "runs" / "name" / "now"
    folders = {name: stages / name / "abc" for name in ("warm_start", "grpo", "evaluate")}
    for folder in (*folders.values(), run_folder):
        folder.mkdir(parents=True)
    entries = {name: {"folder": str(folder)} for name, folder in folders.items()}
    (run_folder / "stages.json").write_text(json.dumps(entries))
    load().save(folders["grpo"] / "policy")
    assert resolve(str(folders["grpo"])) == resolve(str(run_folder)) == str(folders["grpo"] / "policy")
    moved = tmp_path / "elsewhere"
    (tmp_path / "outputs").rename(moved)
    found = resolve(str(moved / "runs" / "name" / "now"))
    assert found == str(moved / "stages" / "grpo" / "abc" / "policy")
    nothing = moved / "stages" / "evaluate" / "abc"
    with pytest.raises(FileNotFoundError, match="evaluate/abc"):
        resolve(str(nothing))


def test_folder_of_an_adapter_without_its_base_model_raises(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="base model"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("name", embedded_names())
def test_embedded_policies_load_and_are_small(name: str) -> None:
    policy = load(pretrained=f"embedded:{name}")
    folder = Path(resolve(f"embedded:{name}"))
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= 5_000_000
    assert 1_000_000 <= sum(p.numel() for p in policy.parameters()) <= 5_000_000


def test_lora_trains_only_adapters_and_save_merges_them(tmp_path: Path) -> None:
    policy = load(lora=ALL_LINEAR)
    trained = [name for name, p in policy.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    ids, mask = policy.encode_prompts(["Numbers: [1, 2], target: 3\n"])
    completion, completion_mask = policy.encode_completions(["2+1=3"])
    expected = policy.log_probs(ids, mask, completion, completion_mask)
    policy.save(tmp_path)
    plain = load(pretrained=str(tmp_path))
    assert_close(plain.log_probs(ids, mask, completion, completion_mask), expected, atol=1e-5, rtol=1e-5)
    assert_close(policy.log_probs(ids, mask, completion, completion_mask), expected)
    assert all("lora_" in n for n, p in policy.named_parameters() if p.requires_grad), "saving must not merge in place"


def test_lora_target_module_is_a_name_of_no_vocabulary_layer_and_not_a_regex() -> None:
    policy = load(lora=LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules="q_proj"))
    assert {name.split(".")[-4] for name, p in policy.named_parameters() if p.requires_grad} == {"q_proj"}
    with pytest.raises(ValueError, match="q_proj"):
        load(lora=LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules=".*(q_proj|lm_head)"))
    for target in ("lm_head", "embed_tokens"):
        with pytest.raises(ValueError, match=rf"lora\.target_modules.*{target}"):
            LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules=["q_proj", target])


def test_adapter_weights_depend_only_on_seed() -> None:
    adapters = []
    for seed in (0, 0, 1):
        torch.rand(3)  # moves the global random state
        before = torch.random.get_rng_state()
        policy = load(lora=ALL_LINEAR, seed=seed)
        assert torch.equal(torch.random.get_rng_state(), before)
        adapters.append(torch.cat([p.flatten() for name, p in policy.named_parameters() if "lora_A" in name]))
    assert torch.equal(adapters[0], adapters[1])
    assert not torch.equal(adapters[0], adapters[2])


@pytest.mark.parametrize("lora", [None, ALL_LINEAR])
def test_gradient_checkpointing_recomputes_layers_with_equal_gradients(lora: LoRA | None, tmp_path: Path) -> None:
    """Passes without gradient, as in generation and scoring, run each layer once."""
    load().save(tmp_path)
    gradients = []
    for checkpointing in (False, True):
        policy = load(pretrained=str(tmp_path), gradient_checkpointing=checkpointing, lora=lora)
        passes: list[int] = []
        for module in policy.modules():
            if type(module).__name__ == "LlamaMLP":
                module.register_forward_pre_hook(lambda *_, passes=passes: passes.append(1))
        ids, mask = policy.encode_prompts(["Numbers: [1, 2], target: 3\n"])
        completion, completion_mask = policy.encode_completions(["2+1=3"])
        with torch.no_grad():
            policy.log_probs(ids, mask, completion, completion_mask)
        assert len(passes) == 1
        policy.log_probs(ids, mask, completion, completion_mask).sum().backward()
        assert len(passes) == (3 if checkpointing else 2)
        gradients.append({name: p.grad for name, p in policy.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert_close(gradients[1][name], gradient, msg=name)


def add_layer(folder: Path) -> None:
    change_config(folder, num_hidden_layers=2)


def widen(folder: Path) -> None:
    change_config(folder, intermediate_size=96)


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def keep_base(folder: Path) -> None:
    """Leaves what has no projection to the vocabulary, untied."""
    change_config(folder, tie_word_embeddings=False)
    AutoModel.from_pretrained(folder).save_pretrained(folder)


def make_reward_model(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=False, num_labels=1)
    AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)


def make_encoder(folder: Path) -> None:
    config = BertConfig(vocab_size=300, hidden_size=32, num_attention_heads=4, num_hidden_layers=1)
    BertModel(config).save_pretrained(folder)


@pytest.mark.parametrize(
    ("harm", "key"),
    [
        (add_layer, r"model\.layers\.1\.input_layernorm\.weight"),
        (widen, r"shape .*model\.layers\.0\.mlp\.down_proj\.weight"),
        (keep_base, r"missing.*: lm_head\.weight;"),
        (make_reward_model, r"missing.*: lm_head\.weight;"),
        (make_encoder, r"cls\.predictions"),
    ],
)
def test_weights_that_would_be_drawn_at_random_are_refused(
    harm: Callable[[Path], None], key: str, tmp_path: Path
) -> None:
    load().save(tmp_path)
    harm(tmp_path)
    with pytest.raises(ValueError, match=rf"policy\.pretrained={tmp_path}: weights .*{key}"):
        load(pretrained=str(tmp_path))


def test_encoder_with_weights_drawn_at_random_is_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dtype": "float32", "training": Frozen(), "trust_remote_code": False}
    load().save(tmp_path)
    load_encoder(pretrained=str(tmp_path), **settings)
    add_layer(tmp_path)
    with pytest.raises(ValueError, match=rf"load_encoder: {tmp_path}: weights .*layers\.1\."):
        load_encoder(pretrained=str(tmp_path), **settings)
