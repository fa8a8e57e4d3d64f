"""Saving with adapters merged: the files of a merged copy of the model, without such a copy."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.core_model_loading import PermuteForRope, WeightConverter, WeightRenaming

from contrastive_reasoning.policies import merging
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.tiny import tiny_model
from tests.tiny_models import tiny_architecture, tiny_policy
from tests.unit.policies.conftest import trained_tokenizer


def adapted(
    kind: str = "llama",
    dtype: torch.dtype = torch.float32,
    *,
    targets: Any = "all-linear",
    tied: bool = True,
    **sizes: Any,
) -> CausalLMPolicy:
    """A policy with adapters that change every weight below them."""
    tokenizer = trained_tokenizer(kind)
    model: Any = tiny_model(tiny_architecture(kind=kind, **sizes), tokenizer, seed=0).to(dtype)
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    whole: Any = LoRA(rank=2, alpha=4.0, dropout=0.1, target_modules=targets).attach(model, seed=0)
    with torch.no_grad():
        for number, (name, weight) in enumerate(whole.named_parameters()):
            if "lora_B" in name:
                weight.normal_(std=0.1, generator=torch.Generator().manual_seed(number))
    return tiny_policy(tokenizer, whole)


def save_merged_copy(policy: CausalLMPolicy, folder: Path, **settings: Any) -> None:
    whole: Any = copy.deepcopy(policy.model)
    whole.merge_and_unload().save_pretrained(folder, **settings)
    policy.tokenizer.save_pretrained(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def renaming() -> Any:
    return WeightRenaming(source_patterns="model.blocks", target_patterns="model.layers")


def permuting() -> Any:
    name, operations = "self_attn.q_proj.weight", [PermuteForRope()]
    return WeightConverter(source_patterns=name, target_patterns=name, operations=operations)  # pyright: ignore


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        (adapted(), {}),
        (adapted(tied=False), {}),
        (adapted(targets=["q_proj", "down_proj"]), {}),
        (adapted("qwen2"), {}),
        (adapted("qwen2", torch.bfloat16), {}),
        (adapted(), {"max_shard_size": "100KB"}),
    ],
    ids=["tied", "untied", "two layers", "biases", "bfloat16", "shards"],
)
def test_files_are_those_of_a_merged_copy(policy: CausalLMPolicy, settings: dict[str, Any], tmp_path: Path) -> None:
    before = copy.deepcopy(policy.model.state_dict())
    policy.save(tmp_path / "ours", **settings)
    save_merged_copy(policy, tmp_path / "copy", **settings)
    ours, copied = contents(tmp_path / "ours"), contents(tmp_path / "copy")
    assert ours.keys() == copied.keys()
    assert [name for name in ours if ours[name] != copied[name]] == []
    assert (sum(name.endswith(".safetensors") for name in ours) > 1) is bool(settings)
    after = policy.model.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


@pytest.mark.parametrize("conversion", [renaming, permuting])
def test_weights_that_transformers_stores_in_another_form_are_merged_too(conversion: Any, tmp_path: Path) -> None:
    policy = adapted()
    policy.model.get_base_model()._weight_conversions = [conversion()]  # pyright: ignore
    policy.save(tmp_path / "ours")
    save_merged_copy(policy, tmp_path / "copy")
    assert contents(tmp_path / "ours") == contents(tmp_path / "copy")
    plain = adapted()
    plain.save(tmp_path / "plain")
    assert contents(tmp_path / "plain")["model.safetensors"] != contents(tmp_path / "ours")["model.safetensors"]


def test_unfinished_save_leaves_no_weights_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(merging, "_merge_stored", stop)
    with pytest.raises(KeyboardInterrupt):
        adapted().save(tmp_path)
    assert [*tmp_path.glob("*.safetensors")] == []


class Allocations(TorchDispatchMode):
    """Counts the bytes of tensors that operations made and that still exist, at most at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = {tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if torch.is_tensor(tensor)}
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if torch.is_tensor(tensor) and tensor.device.type != "meta":
                storage = tensor.untyped_storage()
                if storage._cdata not in own:
                    self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {key: one for key, one in self.alive.items() if not one[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return made


def test_saving_takes_the_memory_of_one_layer_not_of_a_second_model(tmp_path: Path) -> None:
    policy = adapted(layers=12)
    base = policy.model.get_base_model()
    whole = sum(weight.nbytes for name, weight in base.named_parameters() if "lora_" not in name)
    largest = max(weight.nbytes for name, weight in base.named_parameters() if "base_layer" in name)
    with Allocations() as ours:
        policy.save(tmp_path / "ours")
    with Allocations() as copied:
        save_merged_copy(policy, tmp_path / "copy")
    assert ours.peak < 4 * largest < whole / 4
    assert copied.peak > whole
