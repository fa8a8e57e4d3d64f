"""Micro-batches that do not fit into memory, and a reference offloaded to host memory."""

from __future__ import annotations

import gc
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, distributed
from torch.testing import assert_close

from contrastive_reasoning.objectives import ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from lightning_modules.grpo import Reference, out_of_memory
from lightning_modules.zero import ZeroStrategy
from tests.quiet import quiet_trainer
from tests.unit.lightning_modules.grpo_kit import (
    Gradients,
    Metrics,
    fit,
    module,
    objective,
    optimizer,
    policy,
    saving,
    weights,
)

NEVER_THERE = 2**56
"""More bytes than any machine has."""
BUDGET = 10_000
NAME = "train/optimizer/microbatch_tokens"


class Hungry:
    """An objective that runs out of memory in a micro-batch of more than ``rows`` rows, or only in one call."""

    def __init__(self, rows: int, *, only: int | None = None) -> None:
        self.rows, self.only, self.calls = rows, only, 0
        self.sound = objective()

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        self.calls += 1
        if len(inputs.mask) > self.rows and self.only in (None, self.calls):
            torch.empty(NEVER_THERE, dtype=torch.uint8)
        return self.sound(inputs)

    def weights(self, mask: Tensor, *, rows: float, tokens: float) -> Tensor:
        return self.sound.weights(mask, rows=rows, tokens=tokens)


@pytest.fixture(autouse=True)
def freeze_objects_of_earlier_tests() -> None:
    """Excludes objects of earlier tests from garbage collection.

    Each halving of the budget collects garbage, which takes a second after hundreds of tests.
    """
    gc.freeze()  # permanently, as at the end of test collection: unfreeze would undo that for all later tests


class HungryPolicy(CausalLMPolicy):
    """Runs out of memory in a pass that only scores, with more than ``rows`` rows."""

    rows = 3

    def log_probs(self, *args: Any, **settings: Any) -> Tensor:
        if not torch.is_grad_enabled() and len(args[2]) > self.rows:
            torch.empty(NEVER_THERE, dtype=torch.uint8)
        return super().log_probs(*args, **settings)


def hungry_policy(seed: int) -> CausalLMPolicy:
    made = policy(seed=seed)
    made.__class__ = HungryPolicy
    return made


def settings(**changes: Any) -> dict[str, Any]:
    return {"microbatch_tokens": BUDGET, "updates_per_rollout": 2, "gradient_clip": None, **changes}


def test_metrics_exclude_passes_that_ran_out_of_memory() -> None:
    plenty, little = Metrics(), Metrics()
    fit(module(**settings(microbatch_tokens=100)), 1, plenty)
    with pytest.warns(UserWarning, match="does not fit"):
        fit(module(**settings(microbatch_tokens=100, objective=Hungry(rows=0, only=2))), 1, little)
    for name in ("loss", "clip_fraction", "ratio_mean"):
        key = f"train/objective/{name}"
        assert little.steps[0][key] == pytest.approx(plenty.steps[0][key], abs=1e-5)


def last_budget(**changes: Any) -> float:
    metrics = Metrics()
    fit(module(**settings(objective=Hungry(rows=3), minibatches_per_rollout=3, **changes)), 1, metrics)
    return metrics.steps[0][NAME]


@pytest.mark.filterwarnings("ignore:a micro-batch does not fit")
def test_several_minibatches_halve_budget_no_more_than_needed() -> None:
    start = 640
    found = int(last_budget(microbatch_tokens=start))
    assert found < start
    assert last_budget(microbatch_tokens=found) == found, "it fits"
    assert last_budget(microbatch_tokens=2 * found) == found, "and twice as many tokens do not"


def minibatch_gradients(updates: int, **changes: Any) -> list[Tensor]:
    """Gradients of each of three mini-batches; the policy does not change, so that rounding does not accumulate."""
    captured = Gradients()
    made = settings(minibatches_per_rollout=3, updates_per_rollout=updates, optimizer=optimizer(0.0), **changes)
    fit(module(**made), 1, captured)
    return captured.updates


@pytest.mark.parametrize(("hungry", "updates"), [("objective", 2), ("policy", 1), ("reference", 1)])
def test_halving_budget_keeps_gradients_of_several_minibatches(hungry: str, updates: int) -> None:
    """In backward, in scoring by the old policy for mini-batches after the first, and by the reference."""
    scored = {"objective": objective(kl_weight=0.1), "policy": policy(seed=1), "reference": policy(seed=2)}
    parts = {} if hungry == "objective" else scored
    instead = {"objective": Hungry(rows=3), "policy": hungry_policy(seed=1), "reference": hungry_policy(seed=2)}
    plenty = minibatch_gradients(updates, **parts)
    with pytest.warns(UserWarning, match="does not fit"):
        little = minibatch_gradients(updates, **parts | {hungry: instead[hungry]})
    assert len(plenty) == len(little) == 3 * updates
    assert sum(whole.norm() > 1e-3 for whole in plenty) > 3 * updates / 2, "all but those of a group of equals"
    for whole, halved in zip(plenty, little, strict=True):
        assert (whole - halved).norm() <= 1e-6 * whole.norm()


def test_out_of_memory_under_ddp_raises_without_retry() -> None:
    """DDP's gradient buffers would still hold what the passes before the failure have added."""
    trained = module(**settings(objective=Hungry(rows=5)))
    try:
        with pytest.raises(RuntimeError, match=r"(?i)alloc"):
            fit(trained, 1, strategy=DDPStrategy(process_group_backend="gloo"))
    finally:
        distributed.destroy_process_group()  # has one rank; later tests expect no group
    assert trained.microbatch_tokens == BUDGET


def test_resumed_run_starts_with_halved_budget(tmp_path: Path) -> None:
    whole, metrics = module(**settings(objective=Hungry(rows=5))), Metrics()
    with pytest.warns(UserWarning, match="does not fit"):
        fit(whole, 2, saving(tmp_path, keep=2), metrics)
    resumed, later = module(**settings(objective=Hungry(rows=5))), Metrics()
    fit(resumed, 2, saving(tmp_path / "then"), later, resume=tmp_path / "step=000001.ckpt")
    assert later.steps[0][NAME] == metrics.steps[1][NAME] < BUDGET
    assert torch.equal(weights(resumed), weights(whole))


def test_single_row_out_of_memory_raises_and_is_recognised() -> None:
    with pytest.raises(RuntimeError) as error:
        fit(module(**settings(objective=Hungry(rows=0))), 1)
    assert out_of_memory(error.value)
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


HOST, DEVICE = torch.device("cpu"), torch.device("cpu", 0)


@pytest.mark.parametrize(
    ("offload", "expected"), [(True, [HOST, "asked", DEVICE, HOST]), (False, [DEVICE, "asked", DEVICE])]
)
def test_offloaded_reference_is_on_device_only_during_passes(offload: bool, expected: list[object]) -> None:
    reference = Reference(policy(seed=2), offload=offload, shard=False)
    moves: list[object] = []
    reference.policy.to = lambda device: moves.append(torch.device(device))
    reference.place(DEVICE)
    moves.append("asked")
    with reference.on_device():
        pass
    assert moves == expected


def test_reference_stays_unchanged_and_offloading_keeps_results() -> None:
    runs, before = [], {name: value.clone() for name, value in policy().state_dict().items()}
    for offload in (False, True):
        reference, metrics = policy(), Metrics()
        trained = module(reference=reference, offload_reference=offload, objective=objective(kl_weight=0.1))
        fit(trained, 2, metrics)
        first, second = (step["train/objective/kl"] for step in metrics.steps)
        assert first == pytest.approx(0.0, abs=1e-6)
        assert second > 1e-6
        assert_close(dict(reference.state_dict()), before, rtol=0, atol=0)
        runs.append((weights(trained), second))
    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


def zero(stage: int) -> ZeroStrategy:
    return ZeroStrategy(
        stage=stage, offload_optimizer=False, offload_parameters=False, bucket_elements=1000, whole_elements=0
    )


def test_policy_without_padding_is_not_sharded() -> None:
    unpadded = policy()
    unpadded.unpadded = True
    with pytest.raises(ValueError, match=r"module\.shard_reference .* set it to false"):
        Reference(unpadded, offload=False, shard=True)
    trained = module(policy=unpadded)
    for stage, refused in ((2, False), (3, True)):
        trained.trainer = quiet_trainer(devices=1, strategy=zero(stage))
        with pytest.raises(ValueError, match="trainer=zero2") if refused else nullcontext():
            trained.setup("fit")


def test_deepspeed_settings_of_another_stage_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning takes all of DeepSpeed's settings from the file that this variable names."""
    settings = tmp_path / "deepspeed.json"
    monkeypatch.setenv("PL_DEEPSPEED_CONFIG_PATH", str(settings))
    for found, raised in ((2, False), (3, True)):
        settings.write_text(json.dumps({"zero_optimization": {"stage": found}}))
        with pytest.raises(ValueError, match=r"PL_DEEPSPEED_CONFIG_PATH.* 3") if raised else nullcontext():
            zero(2)
