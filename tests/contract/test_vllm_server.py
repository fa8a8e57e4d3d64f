"""VLLMEngine against a fake or real server: completions, log-probs, requests and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutBatch, RolloutEngine, Sampling
from contrastive_reasoning.rollout.vllm import VLLMEngine, request_seeds
from contrastive_reasoning.rollout.vllm_client import ServerError
from contrastive_reasoning.tasks.base import Problem
from tests.contract.vllm_kit import GREEDY, SAMPLED, SEED, engine_of, scored
from tests.ports import free_port
from tests.unit.lightning_modules import grpo_kit as kit

if TYPE_CHECKING:
    from tests.contract.recording import Served

Draw = Callable[..., RolloutBatch]


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY, replace(SAMPLED, top_k=5, top_p=0.9)], ids=repr)
def test_completions_depend_only_on_prompt_and_seed(
    draw: Draw, server: Served, problems: Sequence[Problem], sampling: Sampling
) -> None:
    rollouts = draw(group_size=3, sampling=sampling)
    bodies = {body["seed"]: body for body in server.completions()}
    for p, seed in enumerate(request_seeds(problems, SEED)):
        status, alone = server.backend.answer("/v1/completions", bodies[seed])
        assert status == 200
        choices = alone["choices"] * (3 // len(alone["choices"]))  # the server returns a single greedy choice
        for row, choice in enumerate(choices, start=3 * p):
            assert rollouts.completion_ids[row][rollouts.mask[row]].tolist() == choice["token_ids"]
            assert rollouts.finish_reasons[row] == choice["finish_reason"]
            log_probs = rollouts.old_log_probs[row][rollouts.mask[row]]
            expected = torch.tensor(choice["logprobs"]["token_logprobs"])
            torch.testing.assert_close(log_probs, expected, atol=server.backend.closeness, rtol=0)


def test_generate_calls_written_for_each_completion(draw: Draw) -> None:
    calls: list[tuple[int, str]] = []
    rollouts = draw(group_size=3, written=lambda row, text: calls.append((row, text)))
    assert calls == list(enumerate(rollouts.texts))


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_generate_returns_complete_rollout_batch(
    engine: VLLMEngine, policy: CausalLMPolicy, problems: Sequence[Problem], sampling: Sampling
) -> None:
    long = replace(sampling, max_tokens=120)
    ours, reference = (
        made.generate(policy, problems, group_size=4, sampling=long, seed=SEED)
        for made in (engine, Engine(max_batch_tokens=10_000))
    )
    assert isinstance(engine, RolloutEngine)
    assert ours.problems == reference.problems
    assert torch.equal(ours.prompt_ids, reference.prompt_ids)
    assert torch.equal(ours.prompt_mask, reference.prompt_mask)
    assert (ours.group_size, ours.temperature, ours.pooled) == (4, 1.0, None)
    assert ours.completion_ids.shape == ours.mask.shape == ours.old_log_probs.shape
    assert len(ours) == len(ours.texts) == len(ours.token_spans) == len(ours.finish_reasons) == 20
    assert ours.mask.any(0).all()  # no wider than the longest completion
    assert (ours.completion_ids[~ours.mask] == policy.pad_token_id).all()
    assert (ours.old_log_probs[~ours.mask] == 0).all()
    for row, reason in enumerate(ours.finish_reasons):
        tokens = ours.completion_ids[row][ours.mask[row]].tolist()
        assert (policy.tokenizer.eos_token_id in tokens) == (reason == "stop")
        assert policy.tokenizer.eos_token_id not in tokens[:-1]
    if sampling.greedy:
        assert ours.texts == reference.texts
    else:
        assert set(ours.finish_reasons) == {"stop", "length"}
        assert len(set(ours.texts)) > 15, "the rows of a group are drawn apart"


@pytest.mark.parametrize(
    ("mode", "sampling"),
    [
        ("raw_logprobs", SAMPLED),
        ("raw_logprobs", replace(SAMPLED, top_k=4, top_p=0.8)),
        ("raw_logprobs", GREEDY),
        ("processed_logprobs", replace(SAMPLED, temperature=0.6)),
        ("processed_logprobs", replace(SAMPLED, temperature=1.4)),
        ("processed_logprobs", GREEDY),
    ],
    ids=lambda value: value if isinstance(value, str) else f"T={value.temperature} k={value.top_k}",
)
def test_log_probs_match_policy_at_sampling_temperature(
    draw: Draw, server: Served, policy: CausalLMPolicy, sampling: Sampling
) -> None:
    rollouts = draw(group_size=3, sampling=sampling)
    assert rollouts.temperature == sampling.scoring_temperature
    assert (scored(policy, rollouts) - rollouts.old_log_probs).abs().max() <= server.backend.closeness


@pytest.mark.parametrize(
    ("reported", "sampling", "remedy"),
    [
        ("raw_logprobs", replace(SAMPLED, temperature=0.6), "--logprobs-mode processed_logprobs"),
        ("processed_logprobs", replace(SAMPLED, top_p=0.9), "--logprobs-mode raw_logprobs"),
        ("raw_logprobs", replace(SAMPLED, temperature=0.6, top_p=0.9), "top_k: null and top_p: 1.0"),
        ("processed_logits", SAMPLED, "--logprobs-mode raw_logprobs"),
    ],
)
def test_log_probs_of_other_distribution_raise_before_generation(
    draw: Draw, server: Served, reported: str, sampling: Sampling, remedy: str
) -> None:
    server.tamper["policy_report"] = lambda answer: {
        "results": [{**result, "logprobs_mode": reported} for result in answer["results"]]
    }
    with pytest.raises(ServerError, match=f"log-probs .*{reported}.*{remedy}"):
        draw(sampling=sampling)
    assert "/v1/completions" not in server.paths()


def test_stop_string_ends_completion_and_is_kept(draw: Draw) -> None:
    free = draw(1, group_size=1, sampling=replace(GREEDY, max_tokens=60))
    wanted = next(free.texts[0][i : i + 2] for i in range(4, 50) if free.texts[0][i : i + 2].isascii())
    stopping = replace(GREEDY, max_tokens=60, stop=["never written", wanted])
    rollouts = draw(1, group_size=1, sampling=stopping)
    assert rollouts.finish_reasons == ["stop"]
    assert wanted in rollouts.texts[0]
    assert wanted not in rollouts.texts[0][: rollouts.token_spans[0][-1][0]]


def test_tokens_after_end_token_are_dropped(draw: Draw, server: Served, policy: CausalLMPolicy) -> None:
    """A server that draws several tokens at a time may return tokens after a stop string."""

    def longer(answer: dict[str, Any]) -> dict[str, Any]:
        for choice in answer["choices"]:
            choice["token_ids"] = [7, policy.eos_token_ids[0], 8, 9]
            choice["logprobs"]["token_logprobs"] = [-1.0, -2.0, -3.0, -4.0]
        return answer

    server.tamper["/v1/completions"] = longer
    rollouts = draw()
    assert rollouts.completion_ids.tolist() == [[7, policy.eos_token_ids[0]]] * 10
    assert rollouts.old_log_probs.tolist() == [[-1.0, -2.0]] * 10


@pytest.mark.parametrize("stop", [[], ["7"]], ids=["no-stop", "stop"])
def test_pooled_states_match_our_engine(
    engine: VLLMEngine, policy: CausalLMPolicy, problems: Sequence[Problem], stop: list[str]
) -> None:
    sampling = replace(GREEDY, max_tokens=40, stop=stop)
    policy.model.train()
    ours, reference = (
        made.generate(policy, problems, group_size=2, sampling=sampling, seed=SEED, pooled=True)
        for made in (engine, Engine(max_batch_tokens=10_000))
    )
    assert ours.texts == reference.texts
    assert ours.pooled is not None
    assert reference.pooled is not None
    torch.testing.assert_close(ours.pooled, reference.pooled, atol=2e-5, rtol=1e-4)
    assert not ours.pooled.requires_grad
    assert policy.model.training


def test_repeated_problem_gets_different_completions(draw: Draw, problems: Sequence[Problem]) -> None:
    rollouts = draw(posed=[problems[0]] * 2, group_size=3)
    assert len(set(rollouts.texts)) == 6
    assert rollouts.texts[:3] == draw(1, group_size=3).texts


def test_request_sets_every_option_and_fits_context(draw: Draw, server: Served, policy: CausalLMPolicy) -> None:
    near = Problem(id="near", prompt="7" * 500, answer="")
    draw(posed=[near], sampling=replace(SAMPLED, max_tokens=50))
    body = server.completions()[0]
    assert body["prompt"] == policy.prompt_ids(near.prompt)
    assert body["max_tokens"] == policy.max_length - len(body["prompt"]) < 50
    assert body["stop_token_ids"] == list(policy.eos_token_ids)
    assert {"n": 2, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "stop": []}.items() <= body.items()
    assert {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}.items() <= body.items()
    assert {"logprobs": 0, "return_token_ids": True}.items() <= body.items()
    assert 0 <= body["seed"] < 2**62


@pytest.mark.parametrize("level", [1, 2])
def test_sleeping_server_wakes_for_weights_then_for_cache(
    server: Served, policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path, level: int
) -> None:
    engine = engine_of(server.url, tmp_path, sleep_level=level)
    for _ in range(2):
        engine.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)
    load = ["policy_report", "load_policy", "/reset_prefix_cache"]
    draw = ["policy_report", "/wake_up?tags=kv_cache", "/v1/completions", "policy_report", f"/sleep?level={level}"]
    again = load if level == 2 else []  # level 2 discards the weights
    assert server.paths() == ["/wake_up?tags=weights", *load, *draw, "/wake_up?tags=weights", *again, *draw]


def test_dropped_connection_is_retried_up_to_limit(
    server: Served, policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path
) -> None:
    patient = engine_of(server.url, tmp_path, retries=1)
    server.drop = 1
    rollouts = patient.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)
    assert len(rollouts) == 2
    server.drop = 2
    with pytest.raises(ServerError, match=r"/collective_rpc .*2 times"):
        patient.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)


def test_unreachable_server_raises_with_url(
    policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    engine = engine_of(url, tmp_path)  # the constructor sends no request
    with pytest.raises(ServerError, match=f"{url}/collective_rpc"):
        engine.generate(policy, problems, group_size=2, sampling=SAMPLED, seed=SEED)
    with pytest.raises(ValueError, match="no problems"):
        engine.generate(policy, [], group_size=2, sampling=SAMPLED, seed=SEED)


@pytest.mark.parametrize("mode", ["processed_logprobs"])
def test_training_sends_weights_for_every_step(server: Served, policy: CausalLMPolicy, tmp_path: Path) -> None:
    trainer = kit.fit(kit.module(policy=policy), 3, draws=kit.generation(engine=engine_of(server.url, tmp_path)))
    assert server.paths().count("load_policy") == 3
    assert trainer.callback_metrics["train/rollout/log_prob_gap"] <= server.backend.closeness
