"""``StaticDecode`` writes what ``ContinuousDecode`` writes; its steps need nothing from the host."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.rollout.static import StaticDecode
from tests.tiny_models import tiny_llama, tiny_policy
from tests.unit.rollout.rollout_kit import Problems

SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=70, stop=[])


def both(policy: CausalLMPolicy, problems: Problems, *, budget: int = 10_000, **settings: Any) -> list[RolloutBatch]:
    """The rollouts of the continuous decode, and of the static one."""
    settings = {"group_size": 6, "sampling": SAMPLED, "seed": (3,)} | settings
    return [
        Engine(max_batch_tokens=budget, cuda_graphs=graphs).generate(policy, problems, **settings)
        for graphs in (False, True)
    ]


def check_equal(plain: RolloutBatch, static: RolloutBatch) -> None:
    assert static.texts == plain.texts
    assert static.finish_reasons == plain.finish_reasons
    assert torch.equal(static.completion_ids, plain.completion_ids)
    assert torch.equal(static.mask, plain.mask)
    torch.testing.assert_close(static.old_log_probs, plain.old_log_probs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
@pytest.mark.parametrize("budget", [600, 10_000])
def test_static_rollouts_are_the_continuous_ones(
    any_policy: CausalLMPolicy, problems: Problems, budget: int, pooled: bool
) -> None:
    """Also if rows wait, so that some join while others run."""
    plain, static = both(any_policy, problems, budget=budget, pooled=pooled)
    assert set(plain.finish_reasons) == {"stop", "length"}
    assert plain.mask.sum(1).unique().numel() > 3, "rows leave at different tokens"
    check_equal(plain, static)
    if pooled:
        torch.testing.assert_close(static.pooled, plain.pooled, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
@pytest.mark.parametrize("stop", [["7"], ["3", ", "]])
def test_static_rollouts_end_at_the_same_stop_strings(
    policy: CausalLMPolicy, problems: Problems, stop: list[str], pooled: bool
) -> None:
    plain, static = both(policy, problems, sampling=replace(SAMPLED, stop=stop), pooled=pooled)
    assert any(text.endswith(tuple(stop)) for text in plain.texts)
    check_equal(plain, static)
    if pooled:
        torch.testing.assert_close(static.pooled, plain.pooled, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "change", [{"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.6}, {"temperature": 0.5}, {"max_tokens": 1}]
)
@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
def test_static_rollouts_follow_the_sampling(
    policy: CausalLMPolicy, problems: Problems, change: dict[str, Any], pooled: bool
) -> None:
    check_equal(*both(policy, problems, sampling=replace(SAMPLED, **change), pooled=pooled))


def test_static_rollouts_of_adapters(byte_level: PreTrainedTokenizerFast, problems: Problems) -> None:
    lora = LoRA(rank=2, alpha=4, dropout=0.0, target_modules="all-linear")
    adapted = tiny_policy(byte_level, lora.attach(tiny_llama(byte_level, hidden_size=16), seed=0))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            weight.data += 0.1 * ("lora_B" in name)
    check_equal(*both(adapted, problems))


def test_every_completion_is_reported_once_and_whole(policy: CausalLMPolicy, problems: Problems) -> None:
    calls: list[tuple[int, str]] = []
    engine = Engine(max_batch_tokens=600, cuda_graphs=True)
    rollouts = engine.generate(
        policy,
        problems,
        group_size=3,
        sampling=SAMPLED,
        seed=(0,),
        written=lambda row, text: calls.append((row, text)),
    )
    assert sorted(calls) == list(enumerate(rollouts.texts))


class Shapes(TorchDispatchMode):
    """Records each operation with the shapes of its tensors; one that needs a value on the host is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value of a tensor is read"
        assert func is not torch.ops.aten.nonzero.default, "a shape depends on values"
        shapes = [str(tuple(part.shape)) for part in args if isinstance(part, torch.Tensor)]
        self.seen.append((str(func), *shapes))
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
def test_repeated_steps_are_the_same_operations_and_need_nothing_from_the_host(
    policy: CausalLMPolicy, problems: Problems, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """What a graph needs: the captured operations of one step are right for the next ones."""
    plain = StaticDecode._step
    recorded: dict[tuple[int, ...], list[list[tuple[str, ...]]]] = {}

    def step(decode: StaticDecode) -> None:
        with Shapes() as shapes:
            plain(decode)
        assert decode.cache.own is not None
        key = len(decode.running), decode.width, len(decode.cache.prompts), decode.cache.own.shape[2]
        recorded.setdefault(key, []).append(shapes.seen)

    monkeypatch.setattr(StaticDecode, "_step", step)
    engine = Engine(max_batch_tokens=10_000, cuda_graphs=True)
    engine.generate(policy, problems, group_size=6, sampling=SAMPLED, seed=(3,), pooled=pooled)
    for _, *repeated in recorded.values():  # the first step of each shape is not captured
        assert all(operations == repeated[0] for operations in repeated)
    assert max(map(len, recorded.values())) > 10


def test_steps_are_prepared_anew_only_if_shapes_change(
    policy: CausalLMPolicy, problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, shapes = StaticDecode._first, list[tuple[int, int]]()

    def first(decode: StaticDecode) -> None:
        shapes.append((len(decode.running), decode.width))
        prepare(decode)

    monkeypatch.setattr(StaticDecode, "_first", first)
    engine = Engine(max_batch_tokens=10_000, cuda_graphs=True)
    engine.generate(policy, problems, group_size=6, sampling=replace(SAMPLED, max_tokens=150), seed=(3,))
    assert len(shapes) == len(set(shapes)) > 1


def test_decode_is_freed_at_its_end(
    policy: CausalLMPolicy, problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, decodes = StaticDecode.run, list[Any]()

    def noted(decode: StaticDecode, uniforms: torch.Tensor) -> None:
        decodes.append(weakref.ref(decode))
        run(decode, uniforms)

    monkeypatch.setattr(StaticDecode, "run", noted)
    gc.disable()
    try:
        Engine(max_batch_tokens=10_000, cuda_graphs=True).generate(
            policy, problems, group_size=2, sampling=SAMPLED, seed=(3,)
        )
        assert decodes[0]() is None
    finally:
        gc.enable()
