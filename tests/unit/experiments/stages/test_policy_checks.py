"""Damaged weights and a wrong vLLM server are found before the first stage, without loading weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from contrastive_reasoning.policies.tiny import tiny_model, train_tokenizer
from contrastive_reasoning.rollout.vllm_server.weight_sync import architecture
from experiments.assemble import AssemblyError, build
from experiments.config.folders import EMBEDDED_FOLDER
from experiments.config.known_models import ORIGIN, model_folder
from experiments.stages.experiment import run_experiment
from experiments.stages.policy_checks import INDEX, architecture_of, check_server, check_weights
from experiments.system.checksums import checksums
from tests.config_kit import composed
from tests.ports import free_port

FAST = ("experiment=llama_critic", "debug=fast", "logger.mirror=false")
POLICY = EMBEDDED_FOLDER / "llama_countdown"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An undamaged policy."""
    shutil.copytree(POLICY, tmp_path / "policy")
    return tmp_path / "policy"


@pytest.mark.parametrize(
    "harm",
    [lambda content: content[:-1], lambda content: b"", lambda content: content[:8] + b"x" * 8 + content[16:]],
    ids=["truncated", "empty", "wrong header"],
)
def test_damaged_weights_end_run_before_first_stage(
    harm: Callable[[bytes], bytes], folder: Path, tmp_path: Path
) -> None:
    config = composed(*FAST, f"policy.pretrained={folder}", f"output_dir={tmp_path / 'outputs'}")
    check_weights(config)
    weights = folder / "model.safetensors"
    weights.write_bytes(harm(weights.read_bytes()))
    with pytest.raises(AssemblyError, match=rf"^policy\.pretrained={folder}: model\.safetensors is damaged \(.+\)$"):
        run_experiment(config)
    assert not (tmp_path / "outputs" / "stages").exists()


def test_missing_shard_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "first.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "first.safetensors", "b": "lost.safetensors"}}))
    with pytest.raises(AssemblyError, match=rf"^policy\.pretrained={folder}: lost\.safetensors is missing$"):
        check_weights(composed(*FAST, f"policy.pretrained={folder}"))


def test_incomplete_weights_end_run_before_critic_is_trained(folder: Path, tmp_path: Path) -> None:
    file = folder / "config.json"
    described = json.loads(file.read_text())
    layers = described["num_hidden_layers"]
    file.write_text(json.dumps({**described, "num_hidden_layers": layers + 1}))
    config = composed(*FAST, f"policy.pretrained={folder}", f"output_dir={tmp_path / 'outputs'}")
    with pytest.raises(AssemblyError, match=rf"policy\.pretrained={folder}: weights .*model\.layers\.{layers}\."):
        run_experiment(config)
    assert not (tmp_path / "outputs" / "stages" / "critic").exists()


def test_files_that_are_not_read_may_be_damaged(folder: Path) -> None:
    """Other precisions, and the index of shards beside a single file, which transformers ignores."""
    (folder / "consolidated.safetensors").write_bytes(b"pointer")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "lost.safetensors"}}))
    check_weights(composed(*FAST, f"policy.pretrained={folder}"))


def test_fetched_weights_are_compared_with_recorded_sizes(tmp_path: Path) -> None:
    fetched = model_folder("owner/name", tmp_path)
    shutil.copytree(POLICY, fetched)
    files: dict[str, Any] = checksums(fetched)
    (fetched / ORIGIN).write_text(json.dumps({"name": "owner/name", "files": files}))
    config = composed(*FAST, f"policy.pretrained={fetched}", f"output_dir={tmp_path}")
    (fetched / "config.json").write_text((fetched / "config.json").read_text() + "\n")  # only weights are compared
    check_weights(config)
    files["model.safetensors"]["bytes"] += 1
    (fetched / ORIGIN).write_text(json.dumps({"name": "owner/name", "files": files}))
    again = f"make model name=owner/name over='output_dir={tmp_path}' fetches it again"
    with pytest.raises(AssemblyError, match=rf" is damaged: \d+ bytes, not \d+; {again}$"):
        check_weights(config)


@pytest.mark.parametrize("pretrained", ["null", "someone/model", "embedded:llama_countdown"])
def test_weights_elsewhere_are_not_checked(pretrained: str) -> None:
    check_weights(composed(*FAST, f"policy.pretrained={pretrained}"))


def test_server_is_compared_only_for_stages_that_roll_out() -> None:
    absent = f"rollout.engine.url=http://127.0.0.1:{free_port()}"
    config = composed(*FAST, "rollout=vllm", absent, "rollout.engine.retries=0")
    check_server(config, ["warm_start", "critic"])
    check_server(composed(*FAST), ["grpo", "evaluate"])
    for stage in ("grpo", "evaluate"):
        with pytest.raises(AssemblyError, match="cannot be reached"):
            check_server(config, [stage])


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_architecture_of_policy_is_known_before_it_is_loaded(kind: str) -> None:
    family = ["family=llama" if kind == "llama" else "family=qwen"]
    config = composed(*FAST, *family, "policy.pretrained=null")
    size = build(config, "policy.architecture")
    assert size.kind == kind
    fresh = tiny_model(size, train_tokenizer(["1 2 3"], vocab_size=270, kind=kind), seed=0)
    expected = architecture(fresh.config)
    del expected["vocab_size"]
    assert architecture_of(config) == expected
    loaded: Any = AutoModelForCausalLM.from_pretrained(POLICY)
    assert architecture_of(composed(*FAST, f"policy.pretrained={POLICY}")) == architecture(loaded.config)
