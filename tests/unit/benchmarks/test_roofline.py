"""Bytes that decoding reads, counted token by token; sizes of models; and the roofline fraction of our own arm."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import workloads
from benchmarks.measures import AT_PEAK, PARTS, PEAK, VLLM, Findings
from benchmarks.roofline import Traffic, decode_bytes, traffic_of
from benchmarks.side_by_side import SideBySide, check_lengths, measure_pair, our_arm
from benchmarks.workloads import SHORT, WorkFiles, number_prompt, on
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import TinyArchitecture, train_tokenizer
from tests.tiny_models import tiny_llama

FEW = replace(SHORT, prompts=2, group_size=2, prompt=partial(number_prompt, count=3), microbatch_rows=2)
FAKE_VLLM = f"{sys.executable} -m tests.contract.served"
TOY = TinyArchitecture(
    kind="qwen2",
    hidden_size=32,
    intermediate_size=64,
    layers=2,
    heads=4,
    key_value_heads=2,
    max_length=512,
    vocab_size=700,
)


def test_decode_bytes_match_count_token_by_token() -> None:
    traffic = Traffic(weights=1000, position=10)
    prompts, lengths = [5, 7], [3, 1, 4, 2]
    expected = 0
    for step in (1, 2, 3):  # the pass that reads token number `step` of each row
        expected += 1000
        for prompt in (0, 1):
            rows = [length for length in lengths[2 * prompt : 2 * prompt + 2] if length > step]
            expected += 10 * (prompts[prompt] if rows else 0) + sum(10 * step for _ in rows)
    assert decode_bytes(traffic, prompts, lengths) == expected
    assert decode_bytes(traffic, prompts, [1, 1, 1, 1]) == 0


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_traffic_matches_weights_and_cache_of_policy(dtype: torch.dtype, size: int) -> None:
    tokenizer = train_tokenizer(["1+2=3"], vocab_size=300)
    model = tiny_llama(tokenizer, hidden_size=64, layers=2)
    policy = CausalLMPolicy(model=model, tokenizer=tokenizer, compute_dtype=dtype, chat_template=False)
    numbers = sum(weight.numel() for weight in {id(w): w for w in model.state_dict(keep_vars=True).values()}.values())
    assert traffic_of(policy) == Traffic(weights=numbers * size, position=2 * 2 * 2 * 16 * 4)


@pytest.mark.parametrize(("model", "billions"), [("qwen2_05b", 0.494), ("qwen2_15b", 1.544)])
def test_qwen2_shapes_have_number_of_weights_of_their_name(model: str, billions: float) -> None:
    shape = workloads.QWEN2[model]
    size = dict(vocab_size=shape.vocab_size, hidden_size=shape.hidden_size, intermediate_size=shape.intermediate_size)
    heads = dict(num_attention_heads=shape.heads, num_key_value_heads=shape.key_value_heads)
    config = AutoConfig.for_model("qwen2", **size, **heads, num_hidden_layers=shape.layers, tie_word_embeddings=True)
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    assert sum(weight.numel() for weight in built.parameters()) / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.whole
def test_our_arm_does_same_work_in_every_repeat(tmp_path: Path) -> None:
    workload = replace(FEW, max_tokens=4)
    files = WorkFiles(workload, tmp_path)
    with closing(our_arm(files)) as ours:
        steps = [ours.request("step") for _ in range(2)]
        scoring, prefixes = ours.request("scoring"), ours.request("shared_prefix")
    assert set(steps[0].figures) | set(scoring.figures) == {*PARTS, AT_PEAK}
    assert set(prefixes.figures) == {"shared_prefix", "own_prefix"}
    assert steps[0].tokens == steps[1].tokens
    assert steps[0].tokens["prompt"] == 2 * 2 * files.prompt_tokens
    assert steps[0].tokens["lengths"] == [4, 4, 4, 4]
    check_lengths(workload, steps[0].tokens["lengths"])


@pytest.mark.whole
@pytest.mark.parametrize(("server", "reasons"), [(FAKE_VLLM, []), ("false", ["exit code 1"])])
def test_server_arm_is_measured_or_reason_is_noted(
    server: str, reasons: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.side_by_side.WorkFiles", partial(WorkFiles, folder=tmp_path))
    workload = replace(FEW, max_tokens=4)
    measured, found = {"whole_step", "update_roofline"}, Findings()
    SideBySide(
        workload=workload, measures=measured, repeats=1, python=None, vllm=server, found=found, show=lambda what: None
    )()
    assert [result.peer for result in found.results] == [*([] if reasons else [VLLM.name]), PEAK]
    assert all(result.ratio > 0 for result in found.results)
    assert len(found.notes) == len(reasons)
    assert all(reason in note for reason, note in zip(reasons, found.notes, strict=True))


@pytest.mark.slow
def test_decode_roofline_of_other_model_is_a_fraction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Qwen2 with more tokens than its tokenizer has, like the models for a GPU."""
    monkeypatch.setitem(workloads.QWEN2, "toy", TOY)
    monkeypatch.setitem(workloads.COMPONENT, "toy", 1.0)
    workload = replace(FEW, max_tokens=24)
    workload = on(workload, model="toy", device="cpu")
    files, found = WorkFiles(workload, tmp_path), Findings()
    config = AutoConfig.from_pretrained(files.folder / "policy")
    assert (config.model_type, config.vocab_size) == ("qwen2", 700)
    with closing(our_arm(files)) as ours:
        assert ours.request("step").tokens["lengths"] == [24] * 4
        measure_pair("decode_roofline", ours, workload, 2, found)
    assert [result.measure for result in found.results] == ["decode_roofline"], found.notes
    assert found.results[0].workload == "short prompts, toy on cpu"
    assert 0 < found.results[0].ratio < 1
