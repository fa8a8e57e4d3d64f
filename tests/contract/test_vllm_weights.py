"""Transfer of the policy's weights to a vLLM server: complete and before generation, or an error is raised."""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rollout import RolloutBatch, weights_folder
from contrastive_reasoning.rollout.vllm import VLLMEngine
from contrastive_reasoning.rollout.vllm_client import JSONServer, ServerError
from contrastive_reasoning.tasks.base import Problem
from tests.contract.conftest import policy_of
from tests.contract.vllm_kit import SAMPLED, SEED, engine_of, scored
from tests.tiny_models import tiny_policy
from tests.unit.lightning_modules import grpo_kit as kit

if TYPE_CHECKING:
    from tests.contract.recording import Served

Draw = Callable[..., RolloutBatch]


def test_weights_are_sent_only_when_changed(draw: Draw, server: Served, policy: CausalLMPolicy, tmp_path: Path) -> None:
    first, again = draw(1), draw(1)
    assert torch.equal(first.old_log_probs, again.old_log_probs)
    assert server.paths().count("load_policy") == 1
    next(policy.model.parameters()).data[5] *= 3.0  # does not increment the tensor's version counter
    changed = draw(1)
    assert server.paths().count("load_policy") == server.paths().count("/reset_prefix_cache") == 2
    assert (scored(policy, changed) - changed.old_log_probs).abs().max() <= server.backend.closeness
    assert (scored(policy, first) - first.old_log_probs).abs().max() > 1e-2
    assert list((tmp_path / "weights").iterdir()) == [], "nothing is left of a transfer"


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev/shm."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(weights_folder, "SHARED_MEMORY", folder)
    return folder


def folders_of(server: Served) -> list[Path]:
    """The folders that the server has loaded."""
    return [Path(body["args"][0]) for path, body in server.requests if body.get("method") == "load_policy"]


@pytest.mark.parametrize(
    ("given", "space", "readable", "used"),
    [
        (None, True, True, "shm"),
        (None, True, False, "disk"),
        (None, False, True, "disk"),
        ("weights", True, True, "weights"),
    ],
)
def test_weights_go_through_shared_memory_if_both_sides_can_use_it(
    server: Served,
    policy: CausalLMPolicy,
    problems: Sequence[Problem],
    shared_memory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: str | None,
    space: bool,
    readable: bool,
    used: str,
) -> None:
    root = shared_memory.parent
    if not space:
        monkeypatch.setattr(weights_folder, "free_memory", lambda: weights_folder.RESERVE)
    if not readable:
        server.tamper["can_read"] = lambda answer: {"results": [{"readable": False} for _ in answer["results"]]}
    engine = engine_of(server.url, root, weights_folder=given and str(root / given))
    for _ in range(2):
        engine.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)
        engine.served.forget()
    first, second = folders_of(server)
    assert first.parent == second.parent == root / used
    assert first != second
    assert [*(root / used).iterdir()] == [*shared_memory.iterdir()] == []
    printed = capsys.readouterr().out
    assert printed.count("rollout.engine.weights_folder") == (used == "disk")
    assert used != "disk" or f"{root / used}" in printed


def test_runs_with_equal_weights_and_folders_do_not_share_files(
    server: Served, policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path
) -> None:
    one, other = (engine_of(server.url, tmp_path) for _ in range(2))

    def meddle(answer: Any) -> Any:
        server.tamper.clear()
        other.served.bring(policy)
        assert len([*(tmp_path / "weights").iterdir()]) == 1, "the other transfer has removed its own folder alone"
        return answer

    server.tamper["load_policy"] = meddle
    one.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)
    first, second = folders_of(server)
    assert first != second


@pytest.mark.parametrize("failing", ["save", "load_policy"])
def test_folder_is_removed_after_a_failed_transfer(
    server: Served, policy: CausalLMPolicy, shared_memory: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(folder: Path, **_: object) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    if failing == "save":
        monkeypatch.setattr(policy, "save", fail)
    else:
        server.tamper["load_policy"] = reporting("1" * 32)
    engine = engine_of(server.url, shared_memory.parent, weights_folder=None)
    with pytest.raises(ServerError, match="weights_folder" if failing == "save" else "loaded other weights"):
        engine.served.bring(policy)
    assert [*shared_memory.iterdir()] == []


def test_lora_policy_is_sent_merged(
    engine: VLLMEngine, server: Served, policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    lora = LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules="all-linear")
    adapted = tiny_policy(policy.tokenizer, lora.attach(policy.model, seed=0))  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1)
    rollouts = engine.generate(adapted, problems, group_size=2, sampling=SAMPLED, seed=SEED)
    exact = adapted.double()  # in float32 the rounding error of the adapters' forward pass exceeds the tolerance
    assert (scored(exact, rollouts) - rollouts.old_log_probs).abs().max() <= server.backend.closeness


def reporting(fingerprint: str | None) -> Callable[[Any], Any]:
    """Changes the response to that of workers with other weights."""
    return lambda answer: {"results": [{**result, "fingerprint": fingerprint} for result in answer["results"]]}


def test_restarted_server_raises(draw: Draw, server: Served) -> None:
    draw()
    server.tamper["policy_report"] = reporting(None)
    with pytest.raises(ServerError, match=r"\(None\).*\([0-9a-f]{32}\)"):
        draw()


def test_weights_of_another_run_loaded_during_generation_raise(
    draw: Draw, server: Served, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    policy_of(tokenizer, seed=5).save(tmp_path / "another")

    def meddle(answer: dict[str, Any]) -> dict[str, Any]:
        call = {"method": "load_policy", "args": [str(tmp_path / "another")]}
        assert server.backend.answer("/collective_rpc", call)[0] == 200
        return answer

    server.tamper["/v1/completions"] = meddle
    with pytest.raises(ServerError, match="another run"):
        draw(1)


def test_server_that_loads_other_weights_raises(draw: Draw, server: Served) -> None:
    server.tamper["load_policy"] = reporting("1" * 32)
    with pytest.raises(ServerError, match="loaded other weights"):
        draw()
    assert "/v1/completions" not in server.paths()


def test_failed_prefix_cache_reset_raises(draw: Draw, server: Served) -> None:
    server.tamper["/reset_prefix_cache"] = lambda answer: {**answer, "success": False}
    with pytest.raises(ServerError, match="prefix cache"):
        draw()
    assert "/v1/completions" not in server.paths()


def test_missing_weights_folder_is_named_in_error(server: Served) -> None:
    client = JSONServer(url=server.url, timeout=60.0, retries=0)
    with pytest.raises(ServerError, match=r"status 500: .*/nowhere"):
        client.post("/collective_rpc", {"method": "load_policy", "args": ["/nowhere"]})


def test_other_model_or_vocabulary_raises_before_sending_weights(
    engine: VLLMEngine, server: Served, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]
) -> None:
    shallow = policy_of(tokenizer, seed=1, layers=1)
    of_words = policy_of(train_tokenizer(["Another text, with other merges"] * 3, vocab_size=262), seed=1)
    for other, difference in ((shallow, ".*num_hidden_layers 2, not 1"), (of_words, r"vocab_size \d+, not 262\)")):
        with pytest.raises(ServerError, match=difference):
            engine.generate(other, problems, group_size=2, sampling=SAMPLED, seed=SEED)
    assert server.paths() == ["policy_report"] * 2


@pytest.mark.parametrize("mode", ["processed_logprobs"])
def test_faulty_server_weights_show_in_first_step_metrics(
    server: Served, policy: CausalLMPolicy, tmp_path: Path
) -> None:
    """The server reports the right weights, but one matrix is lost after loading."""
    faulty = copy.deepcopy(policy)
    with torch.no_grad():
        faulty.model.model.layers[1].mlp.down_proj.weight.zero_()  # pyright: ignore
    faulty.save(tmp_path / "faulty")

    def spoil(answer: dict[str, Any]) -> dict[str, Any]:
        call = {"method": "load_policy", "args": [str(tmp_path / "faulty")]}
        assert server.backend.answer("/collective_rpc", call)[0] == 200
        server.tamper["policy_report"] = reporting(answer["results"][0]["fingerprint"])
        return answer

    def metrics() -> tuple[float, float]:
        draws = kit.generation(engine=engine_of(server.url, tmp_path))
        logged = kit.fit(kit.module(policy=copy.deepcopy(policy)), 1, draws=draws).callback_metrics
        return float(logged["train/rollout/log_prob_gap"]), float(logged["train/objective/ratio_max"])

    sound = metrics()
    server.tamper["load_policy"] = spoil
    gap, ratio = metrics()
    assert sound[0] <= server.backend.closeness
    assert abs(sound[1] - 1) <= 2 * server.backend.closeness
    assert gap > 0.1
    assert ratio > 1.1
