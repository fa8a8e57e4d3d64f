"""``Engine`` against Transformers' ``generate`` and against one forward pass over the completed text."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.shared_cache import SharedCache, read_prompts, tokens_in_free_memory
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.tasks.base import Problem
from tests.hf_engine import HFEngine
from tests.tiny_models import tiny_llama, tiny_policy
from tests.unit.rollout.rollout_kit import Problems, row_by_row

ENGINE = Engine(max_batch_tokens=10_000)
SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=24, stop=[])
GREEDY = replace(SAMPLED, temperature=0.0)


def recomputed(policy: CausalLMPolicy, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
    return row_by_row(policy, rollouts)[0]


@pytest.mark.parametrize(
    "cut", [{}, {"temperature": 0.4}, {"temperature": 1.7}, {"top_k": 3}, {"top_p": 0.6}, {"top_k": 20, "top_p": 0.9}]
)
def test_log_probs_match_a_plain_forward_pass(
    any_policy: CausalLMPolicy, problems: Problems, cut: dict[str, float]
) -> None:
    sampling = replace(SAMPLED, **cut)
    rollouts = ENGINE.generate(any_policy, problems, group_size=3, sampling=sampling, seed=(0,))
    assert rollouts.temperature == sampling.temperature
    assert (recomputed(any_policy, rollouts) - rollouts.old_log_probs).abs().max() <= 1e-5


@pytest.mark.parametrize("stop", [[], ["7"]], ids=["no-stop", "stop"])
def test_pooled_states_match_a_plain_forward_pass(
    any_policy: CausalLMPolicy, problems: Problems, stop: list[str]
) -> None:
    sampling = replace(SAMPLED, max_tokens=40, stop=stop)
    plain, pooled = (
        ENGINE.generate(any_policy, problems, group_size=6, sampling=sampling, seed=(3,), pooled=pooled)
        for pooled in (False, True)
    )
    assert plain.pooled is None
    assert torch.equal(pooled.completion_ids, plain.completion_ids)
    assert set(pooled.finish_reasons) == {"stop", "length"}
    assert pooled.mask.sum(1).unique().numel() > 1, "rows of several lengths"
    torch.testing.assert_close(pooled.pooled, row_by_row(any_policy, pooled)[1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
def test_generate_calls_written_once_per_completion(policy: CausalLMPolicy, problems: Problems, pooled: bool) -> None:
    """Also if the rows are generated in several batches."""
    calls: list[tuple[int, str]] = []
    settings: dict[str, Any] = {"group_size": 2, "sampling": SAMPLED, "seed": (0,), "pooled": pooled}
    engine = Engine(max_batch_tokens=60)
    rollouts = engine.generate(policy, problems[:3], **settings, written=lambda row, text: calls.append((row, text)))
    assert sorted(calls) == list(enumerate(rollouts.texts))
    assert rollouts.texts == engine.generate(policy, problems[:3], **settings).texts


def test_greedy_tokens_match_transformers_generate(any_policy: CausalLMPolicy, problems: Problems) -> None:
    own, reference = (
        engine.generate(any_policy, problems, group_size=1, sampling=GREEDY, seed=(0,))
        for engine in (ENGINE, HFEngine(max_batch_tokens=10_000))
    )
    assert torch.equal(own.completion_ids, reference.completion_ids)
    assert torch.equal(own.mask, reference.mask)
    assert own.finish_reasons == reference.finish_reasons
    assert own.temperature == 1.0
    torch.testing.assert_close(own.old_log_probs, reference.old_log_probs, atol=1e-5, rtol=0)


def test_rollouts_depend_on_the_seed_but_not_on_other_problems_or_the_global_rng_state(
    policy: CausalLMPolicy, problems: Problems
) -> None:
    before = torch.random.get_rng_state()
    whole, again, other = (
        ENGINE.generate(policy, problems, group_size=4, sampling=SAMPLED, seed=(seed, "rollout", 2))
        for seed in (7, 7, 8)
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(whole.completion_ids, again.completion_ids)
    assert torch.equal(whole.old_log_probs, again.old_log_probs)
    assert other.texts != whole.texts
    third = ENGINE.generate(policy, problems[2:3], group_size=4, sampling=SAMPLED, seed=(7, "rollout", 2))
    assert third.texts == whole.texts[8:12]


def test_completions_end_at_the_first_end_token_or_at_max_tokens_and_texts_are_their_tokens(
    policy: CausalLMPolicy, problems: Problems
) -> None:
    long = replace(SAMPLED, max_tokens=200)
    rollouts = ENGINE.generate(policy, problems, group_size=8, sampling=long, seed=(3,))
    end = policy.tokenizer.eos_token_id
    assert set(rollouts.finish_reasons) == {"stop", "length"}
    for row, reason in enumerate(rollouts.finish_reasons):
        tokens = rollouts.completion_ids[row][rollouts.mask[row]].tolist()
        assert (end in tokens) == (reason == "stop")
        assert end not in tokens[:-1]
        assert reason == "stop" or len(tokens) == 200
        assert len(rollouts.token_spans[row]) == len(tokens)
        if reason == "stop":
            assert rollouts.token_spans[row][-1] == (len(rollouts.texts[row]),) * 2
    assert (rollouts.old_log_probs[~rollouts.mask] == 0).all()
    assert (rollouts.completion_ids[~rollouts.mask] == policy.pad_token_id).all()
    assert rollouts.mask.any(0).all()  # no wider than the longest
    assert any(not text.isascii() for text in rollouts.texts)  # a random policy writes broken UTF-8
    for row, text in enumerate(rollouts.texts):
        decoded = policy.tokenizer.decode(rollouts.completion_ids[row][rollouts.mask[row]], skip_special_tokens=True)
        assert decoded == text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def test_stop_string_ends_a_completion_and_stays_in_its_text(policy: CausalLMPolicy, problems: Problems) -> None:
    unstopped = replace(GREEDY, max_tokens=60)
    free = ENGINE.generate(policy, problems, group_size=1, sampling=unstopped, seed=(0,))
    row, wanted = next(
        (row, text[i : i + 2])
        for row, text in enumerate(free.texts)
        for i, (first, _) in enumerate(free.token_spans[row])
        if i == first and i > 2 and text[i : i + 2].isascii() and len(text) > i + 1
    )
    stopping = replace(unstopped, stop=[wanted, "never written"])
    rollouts = ENGINE.generate(policy, problems[row : row + 1], group_size=1, sampling=stopping, seed=(0,))
    assert rollouts.finish_reasons == ["stop"]
    assert wanted in rollouts.texts[0]
    tokens = int(rollouts.mask.sum())
    assert torch.equal(rollouts.completion_ids[0], free.completion_ids[row, :tokens])
    assert wanted not in free.texts[row][: rollouts.token_spans[0][-1][0]]


def test_stop_string_that_begins_in_prompt_ends_no_completion(policy: CausalLMPolicy, problems: Problems) -> None:
    free = ENGINE.generate(policy, problems, group_size=1, sampling=GREEDY, seed=(0,))
    stops = [problem.prompt[-1] + text[:1] for problem, text in zip(problems, free.texts, strict=True)]
    row = next(row for row, stop in enumerate(stops) if len(stop) == 2 and stop not in free.texts[row])
    stopping = replace(GREEDY, stop=[stops[row]])
    rollouts = ENGINE.generate(policy, problems[row : row + 1], group_size=1, sampling=stopping, seed=(0,))
    tokens = int(free.mask[row].sum())
    assert rollouts.completion_ids[0].tolist() == free.completion_ids[row, :tokens].tolist()
    assert rollouts.finish_reasons == free.finish_reasons[row : row + 1]


def test_generate_keeps_module_modes_and_records_no_gradients(policy: CausalLMPolicy, problems: Problems) -> None:
    frozen = next(policy.model.train().children()).eval()
    rollouts = ENGINE.generate(policy, problems, group_size=1, sampling=GREEDY, seed=(0,))
    assert policy.model.training
    assert not frozen.training
    assert not rollouts.old_log_probs.requires_grad
    assert not rollouts.old_log_probs.is_inference()
    policy.model.train()


def test_context_length_limits_completions(policy: CausalLMPolicy) -> None:
    long = [Problem(id=name, prompt="7" * length, answer="") for name, length in (("near", 509), ("short", 3))]
    unending = replace(SAMPLED, max_tokens=6)
    rollouts = ENGINE.generate(policy, long, group_size=2, sampling=unending, seed=(0,))
    lengths = rollouts.mask.sum(1).tolist()
    assert policy.max_length == 512
    assert max(lengths[:2]) <= 2  # 512 − 509 − the beginning-of-text token
    assert max(lengths[2:]) == 6
    assert (recomputed(policy, rollouts) - rollouts.old_log_probs).abs().max() <= 1e-5


def test_automatic_budget_holds_what_a_quarter_of_free_memory_takes(
    policy: CausalLMPolicy, problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two ranks of a CPU, each holds half of that. The rollouts are those of any budget."""
    (read,) = read_prompts(policy, [torch.tensor([1, 2, 3])])
    of_a_token = read.keys_values[..., 0, :].numel() * read.keys_values.itemsize
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4 * 200 * of_a_token + 3))
    assert [tokens_in_free_memory(policy, ranks=ranks) for ranks in (1, 2)] == [200, 100]
    held = []
    advance = SharedCache.advance
    monkeypatch.setattr(SharedCache, "advance", lambda cache: (held.append(cache.reserved), advance(cache)))
    given: dict[str, Any] = {"group_size": 3, "sampling": SAMPLED, "seed": (3,)}
    found = Engine(max_batch_tokens="auto").generate(policy, problems, **given)
    assert 100 < max(held) <= 200
    assert torch.equal(found.completion_ids, ENGINE.generate(policy, problems, **given).completion_ids)


def test_engine_rejects_invalid_sizes_and_overlong_prompts(policy: CausalLMPolicy, problems: Problems) -> None:
    long = Problem(id="countdown-17", prompt="7" * 600, answer="")
    for given, size, named in (
        ([], 2, "no problems"),
        (problems, 0, "group_size.*0"),
        ([long], 2, "countdown-17.* 601 .* 512 "),
    ):
        with pytest.raises(ValueError, match=named):
            ENGINE.generate(policy, given, group_size=size, sampling=SAMPLED, seed=(0,))
    with pytest.raises(ValueError, match=r"max_batch_tokens.*0"):
        Engine(max_batch_tokens=0)


def test_lora_dropout_is_off_during_generation(byte_level: PreTrainedTokenizerFast, problems: Problems) -> None:
    lora = LoRA(rank=2, alpha=4.0, dropout=0.5, target_modules="all-linear")
    adapted = tiny_policy(byte_level, lora.attach(tiny_llama(byte_level, hidden_size=16), seed=0))
    with torch.no_grad():
        for parameter in adapted.parameters():
            parameter.add_(0.05)
    adapted.model.train()
    rollouts = ENGINE.generate(adapted, problems, group_size=2, sampling=SAMPLED, seed=(0,))
    assert (recomputed(adapted, rollouts) - rollouts.old_log_probs).abs().max() <= 1e-5
    assert all(module.training for module in adapted.model.modules())


@pytest.mark.parametrize("pooled", [False, True])
def test_token_budget_bounds_memory_but_keeps_rollouts(
    policy: CausalLMPolicy,
    problems: Problems,
    pooled: bool,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Each prompt is read once; the allocation stays within the budget, except for a single row that is longer."""
    settings: dict[str, Any] = {"group_size": 3, "seed": (3,), "pooled": pooled}
    settings["sampling"] = replace(SAMPLED, max_tokens=40, stop=("7",))
    whole = Engine(max_batch_tokens=10**6).generate(policy, problems, **settings)
    assert set(whole.finish_reasons) == {"stop", "length"}
    held, tokens = [], []
    advance = SharedCache.advance
    monkeypatch.setattr(
        SharedCache, "advance", lambda cache: (held.append((cache.reserved, cache.own)), advance(cache))
    )
    embeddings = policy.model.get_input_embeddings()
    counting = embeddings.register_forward_pre_hook(lambda _, inputs: tokens.append(inputs[0].numel()))
    request.addfinalizer(counting.remove)  # the policy is that of other tests, too
    for budget in (1, 77, 333):
        held.clear()
        tokens.clear()
        split = Engine(max_batch_tokens=budget).generate(policy, problems, **settings)
        assert torch.equal(split.completion_ids, whole.completion_ids)
        assert torch.equal(split.mask, whole.mask)
        assert (split.finish_reasons, split.texts) == (whole.finish_reasons, whole.texts)
        torch.testing.assert_close(split.old_log_probs, whole.old_log_probs, atol=1e-5, rtol=0)
        torch.testing.assert_close(split.pooled, whole.pooled, atol=1e-5, rtol=1e-4)
        assert sum(tokens) == int(whole.prompt_mask.sum())
        assert all(reserved <= budget or own.shape[2] == 1 for reserved, own in held)
