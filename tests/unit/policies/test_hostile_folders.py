"""Hostile model folders: no code in them is run, and each error is one sentence."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from contrastive_reasoning.critics import Frozen, load_encoder
from contrastive_reasoning.policies.load import resolve, tokenizer_and_context
from contrastive_reasoning.policies.prompting import render
from tests.hostile.trap import Trap, module, pickled
from tests.tiny_models import loaded_policy

REACHES_OUT = "{{ cycler.__init__.__globals__.os.system('touch %s') }}"
NEVER_ENDS = "{% for i in range(10 ** 12) %}{{ i }}{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of an embedded policy's files, for tests to corrupt."""
    return Path(shutil.copytree(resolve("embedded:llama_countdown"), tmp_path / "policy"))


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def load(folder: Path, **changes: Any) -> Any:
    return loaded_policy(folder, chat_template=None, **changes)


def update_json(path: Path, **changes: Any) -> None:
    """Changes some keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def zipped(folder: Path, canary: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Trap(canary)}, folder / "pytorch_model.bin")


def bare(folder: Path, canary: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickled(canary))


def misnamed(folder: Path, canary: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickled(canary))


@pytest.mark.parametrize("weights", [zipped, bare, misnamed])
def test_weights_with_code_raise_and_are_not_run(
    folder: Path, canary: Path, weights: Callable[[Path, Path], None]
) -> None:
    weights(folder, canary)
    with pytest.raises(ValueError, match=r"^policy\.pretrained=\S+: .*weights"):
        load(folder)
    with pytest.raises(ValueError, match=r"^load_encoder: \S+: .*weights"):
        load_encoder(pretrained=str(folder), dtype="float32", training=Frozen(), trust_remote_code=False)
    assert not canary.exists()
    pickle.loads(pickled(canary))
    assert canary.exists(), "the trap works"


def test_plain_pytorch_bin_weights_load(folder: Path) -> None:
    expected = load(folder).model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(expected, folder / "pytorch_model.bin")
    assert torch.equal(load(folder).model.state_dict()["model.norm.weight"], expected["model.norm.weight"])


def remote_tokenizer(folder: Path) -> None:
    update_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", "evil.T"]}, tokenizer_class="T")


def remote_model(folder: Path) -> None:
    maps = {"AutoConfig": "evil.C", "AutoModel": "evil.M", "AutoModelForCausalLM": "evil.M"}
    update_json(folder / "config.json", auto_map=maps, model_type="evil")


@pytest.mark.parametrize("remote", [remote_tokenizer, remote_model])
def test_remote_code_is_imported_only_if_trusted(
    folder: Path, canary: Path, remote: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder.parent / "modules"))
    remote(folder)
    (folder / "evil.py").write_text(module(canary, "C", "M", "T"))
    calls: list[Callable[[], Any]] = [
        lambda: load(folder),
        lambda: tokenizer_and_context(str(folder), trust_remote_code=False),
        lambda: load_encoder(pretrained=str(folder), dtype="float32", training=Frozen(), trust_remote_code=False),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            call()
    assert not canary.exists()
    with pytest.raises(Exception, match=r"."):
        load(folder, trust_remote_code=True)
    assert canary.exists(), "the trap works"


def test_remote_code_for_known_model_type_is_ignored(folder: Path, canary: Path) -> None:
    update_json(folder / "config.json", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    (folder / "evil.py").write_text(module(canary, "C", "M"))
    assert type(load(folder).model).__name__ == "LlamaForCausalLM"
    assert not canary.exists()


@pytest.mark.parametrize("content", ["pickle", '{"version": "1.0", "added_tokens": [', "[" * 100_000, "\x00"])
def test_invalid_tokenizer_file_raises(folder: Path, canary: Path, content: str) -> None:
    data = pickled(canary) if content == "pickle" else content.encode()
    (folder / "tokenizer.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"^policy\.pretrained=\S+: .*tokenizer.*JSON"):
        load(folder)
    assert not canary.exists()


@pytest.mark.parametrize("template", [REACHES_OUT, NEVER_ENDS, "{% if %}", "{{ messages.append(1) }}"])
def test_chat_template_is_rendered_in_sandbox(folder: Path, canary: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template.replace("%s", str(canary)))
    tokenizer, _ = tokenizer_and_context(str(folder), trust_remote_code=False)
    with pytest.raises(ValueError, match=r"^policy\.chat_template"):
        render(tokenizer, "3 4", chat_template=True)
    assert not canary.exists()
