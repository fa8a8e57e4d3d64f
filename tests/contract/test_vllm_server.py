"""What an engine over a vLLM server must do, against a server of ours: same completions, log-probs, refusals."""

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
    from tests.contract.conftest import FakeVLLM

Draw = Callable[..., RolloutBatch]


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY, replace(SAMPLED, top_k=5, top_p=0.9)], ids=repr)
def test_completions_are_those_that_the_weights_and_the_seed_give(
    draw: Draw,
    policy: CausalLMPolicy,
    problems: Sequence[Problem],
    expected: Callable[..., RolloutBatch],
    sampling: Sampling,
) -> None:
    rollouts = draw(group_size=3, sampling=sampling)
    for p, (problem, seed) in enumerate(zip(problems, request_seeds(problems, SEED), strict=True)):
        alone = expected(policy.prompt_ids(problem.prompt), seed=seed, group_size=3, sampling=sampling)
        rows = slice(3 * p, 3 * p + 3)
        assert rollouts.texts[rows] == alone.texts
        assert rollouts.token_spans[rows] == alone.token_spans
        assert rollouts.finish_reasons[rows] == alone.finish_reasons
        for row, one in zip(range(3 * p, 3 * p + 3), range(3), strict=True):
            ours = rollouts.completion_ids[row][rollouts.mask[row]]
            assert torch.equal(ours, alone.completion_ids[one][alone.mask[one]])


def test_who_listens_is_told_of_each_completion(draw: Draw) -> None:
    told: list[tuple[int, str]] = []
    rollouts = draw(group_size=3, written=lambda row, text: told.append((row, text)))
    assert told == list(enumerate(rollouts.texts))


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_greedy_and_sampled_rollouts_are_a_whole_batch(
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
    assert ours.mask.any(0).all()  # no wider than the longest
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
def test_log_probs_are_the_policys_at_the_temperature(
    draw: Draw, fake: FakeVLLM, policy: CausalLMPolicy, mode: str, sampling: Sampling
) -> None:
    fake.worker.vllm_config.model_config.logprobs_mode = mode
    rollouts = draw(group_size=3, sampling=sampling)
    assert rollouts.temperature == sampling.scoring_temperature
    assert (scored(policy, rollouts) - rollouts.old_log_probs).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("mode", "sampling", "remedy"),
    [
        ("raw_logprobs", replace(SAMPLED, temperature=0.6), "--logprobs-mode processed_logprobs"),
        ("processed_logprobs", replace(SAMPLED, top_p=0.9), "--logprobs-mode raw_logprobs"),
        ("raw_logprobs", replace(SAMPLED, temperature=0.6, top_p=0.9), "top_k: null and top_p: 1.0"),
        ("processed_logits", SAMPLED, "--logprobs-mode raw_logprobs"),
    ],
)
def test_log_probs_of_another_distribution_are_refused_before_anything_is_drawn(
    draw: Draw, fake: FakeVLLM, mode: str, sampling: Sampling, remedy: str
) -> None:
    fake.worker.vllm_config.model_config.logprobs_mode = mode
    with pytest.raises(ServerError, match=f"log-probs are {mode}, not those at temperature .*: .*{remedy}"):
        draw(sampling=sampling)
    assert "/v1/completions" not in fake.paths()


def test_stop_strings_end_a_completion_and_stay_in_it(draw: Draw) -> None:
    free = draw(1, group_size=1, sampling=replace(GREEDY, max_tokens=60))
    wanted = next(free.texts[0][i : i + 2] for i in range(4, 50) if free.texts[0][i : i + 2].isascii())
    stopping = replace(GREEDY, max_tokens=60, stop=["never written", wanted])
    rollouts = draw(1, group_size=1, sampling=stopping)
    assert rollouts.finish_reasons == ["stop"]
    assert wanted in rollouts.texts[0]
    assert wanted not in rollouts.texts[0][: rollouts.token_spans[0][-1][0]]


def test_tokens_after_the_end_are_dropped(draw: Draw, fake: FakeVLLM, policy: CausalLMPolicy) -> None:
    """A server that draws several tokens at a time may hand on what it drew behind a stop string."""

    def longer(answer: dict[str, Any]) -> dict[str, Any]:
        for choice in answer["choices"]:
            choice["token_ids"] = [7, policy.eos_token_ids[0], 8, 9]
            choice["logprobs"]["token_logprobs"] = [-1.0, -2.0, -3.0, -4.0]
        return answer

    fake.tamper = longer
    rollouts = draw()
    assert rollouts.completion_ids.tolist() == [[7, policy.eos_token_ids[0]]] * 10
    assert rollouts.old_log_probs.tolist() == [[-1.0, -2.0]] * 10


@pytest.mark.parametrize("stop", [[], ["7"]], ids=["no-stop", "stop"])
def test_pooled_states_are_those_of_our_engine(
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


def test_a_problem_that_comes_twice_gets_other_completions(draw: Draw, problems: Sequence[Problem]) -> None:
    rollouts = draw(posed=[problems[0]] * 2, group_size=3)
    assert len(set(rollouts.texts)) == 6
    assert rollouts.texts[:3] == draw(1, group_size=3).texts


def test_a_request_spells_every_setting_and_leaves_room_in_the_context(
    draw: Draw, fake: FakeVLLM, policy: CausalLMPolicy
) -> None:
    near = Problem(id="near", prompt="7" * 500, answer="")
    draw(posed=[near], sampling=replace(SAMPLED, max_tokens=50))
    body = next(body for path, body in fake.requests if path == "/v1/completions")
    assert body["prompt"] == policy.prompt_ids(near.prompt)
    assert body["max_tokens"] == policy.max_length - len(body["prompt"]) < 50
    assert body["stop_token_ids"] == list(policy.eos_token_ids)
    assert {"n": 2, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "stop": []}.items() <= body.items()
    assert {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}.items() <= body.items()
    assert {"logprobs": 0, "return_token_ids": True}.items() <= body.items()
    assert 0 <= body["seed"] < 2**62


@pytest.mark.parametrize("level", [1, 2])
def test_a_sleeping_server_is_woken_for_the_weights_then_for_its_cache(
    fake: FakeVLLM, policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path, level: int
) -> None:
    engine = engine_of(fake.url, tmp_path, sleep_level=level)
    for _ in range(2):
        engine.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)
    load = ["load_policy", "/reset_prefix_cache"]
    draw = ["policy_report", "/wake_up?tags=kv_cache", "/v1/completions", "policy_report", f"/sleep?level={level}"]
    again = load if level == 2 else []  # at level 2 the weights are gone
    assert fake.paths() == ["/wake_up?tags=weights", *load, *draw, "/wake_up?tags=weights", *again, *draw]


def test_a_dropped_connection_is_tried_again_a_bounded_number_of_times(
    fake: FakeVLLM, policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path
) -> None:
    patient = engine_of(fake.url, tmp_path, retries=1)
    fake.drop = 1
    rollouts = patient.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)
    assert len(rollouts) == 2
    fake.drop = 2
    with pytest.raises(ServerError, match=r"/collective_rpc cannot be reached \(tried 2 times\)"):
        patient.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=SEED)


def test_a_server_that_is_not_there_is_named(
    policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    engine = engine_of(url, tmp_path)  # building it asks for nothing
    with pytest.raises(ServerError, match=f"{url}/collective_rpc cannot be reached"):
        engine.generate(policy, problems, group_size=2, sampling=SAMPLED, seed=SEED)
    with pytest.raises(ValueError, match="no problems"):
        engine.generate(policy, [], group_size=2, sampling=SAMPLED, seed=SEED)


def test_training_brings_every_update_to_the_server(fake: FakeVLLM, tmp_path: Path) -> None:
    other = kit.policy(seed=5)
    fake.worker.policy = type(fake.worker.policy)(
        model=other.model, tokenizer=other.tokenizer, compute_dtype=torch.float32, chat_template=False
    )
    fake.worker.vllm_config.model_config.logprobs_mode = "processed_logprobs"
    drawing = kit.generation()
    drawing.engine = engine_of(fake.url, tmp_path)
    trainer = kit.fit(kit.module(), 3, drawing)
    assert fake.paths().count("load_policy") == 3
    assert trainer.callback_metrics["train/rollout/log_prob_gap"] <= 1e-5
