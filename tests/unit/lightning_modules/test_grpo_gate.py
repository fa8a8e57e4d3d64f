"""The trust gate in a real Trainer: a run without trust is bitwise plain GRPO, one with trust is not; resuming."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from contrastive_reasoning.advantages import GroupRelative, Process, TrustGate
from contrastive_reasoning.rewards import Credit, StepCredit
from contrastive_reasoning.rollout import RolloutBatch
from tests.unit.lightning_modules.grpo_kit import Digits, Metrics, fit, module, weights

OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)


class StepReward:
    """The share of digits, and a step on the first half of every completion, valued at the sum of its token ids.

    ``auroc`` is the quality of these values that it reports in its metrics.
    """

    def __init__(self, auroc: float) -> None:
        self.auroc = auroc

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = Digits()(rollouts).outcome
        halves = (rollouts.mask.sum(dim=1) // 2).tolist()
        values = (rollouts.completion_ids * rollouts.mask).sum(dim=1).double().tolist()
        steps = [[StepCredit(0, half, value, depth=3)] for half, value in zip(halves, values, strict=True)]
        parts = {"digits": outcome, "critic": outcome.new_tensor(values)}
        return Credit(outcome=outcome, parts=parts, steps=steps, metrics={"steps/auroc_siblings": self.auroc})


def gated(auroc: float, **changes: Any) -> Any:
    settings: dict[str, Any] = {"window": 2, "floor": 0.6, "span": 0.3, "total_steps": 6}
    process = Process(outcome=OUTCOME, weight=0.5, epsilon=1e-6)
    return module(reward=StepReward(auroc), advantage=TrustGate(advantage=process, **settings | changes))


def test_run_without_trust_is_bitwise_equal_to_plain_grpo() -> None:
    plain, closed, wide_open = module(advantage=OUTCOME), gated(0.6), gated(0.9)
    seen = Metrics()
    fit(plain, 6)
    fit(closed, 6)
    fit(wide_open, 6, seen)
    assert torch.equal(weights(closed), weights(plain))
    assert not torch.equal(weights(wide_open), weights(plain)), "the same values, trusted"
    assert [step["train/gate/weight"] for step in seen.steps] == [0, 0, 0.5, 0.5, 0.25, 0]


def test_resumed_run_with_gate_is_bitwise_equal_to_uninterrupted_run(tmp_path: Path) -> None:
    whole = gated(0.9)
    fit(whole, 5)
    saving = ModelCheckpoint(dirpath=tmp_path, filename="last", every_n_train_steps=3)
    fit(gated(0.9), 5, saving, stop_after=3)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["advantage"]["calls"] == 3
    resumed = gated(0.9)
    fit(resumed, 5, resume=tmp_path / "last.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.advantage.state_dict() == whole.advantage.state_dict()


class WarmedUp(StepReward):
    """Trains for two batches before the policy does."""

    warmup_steps = 2

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class Reported(Callback):
    """Records the metrics of each step's result, as a callback reads them."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.steps.append(dict(pl_module.result.metrics))


def test_gate_weight_is_zero_in_last_batch_after_warmup() -> None:
    """Annealing counts the batches that train the policy: after 2 of warm-up, 6 as without one."""
    trained, seen, reported = gated(0.9), Metrics(), Reported()
    trained.reward = WarmedUp(0.9)
    trainer = fit(trained, 6, seen, reported, stop_after=6)
    assert (trained.rollout_step, trainer.global_step) == (8, 6)
    gate_weights = [step.get("train/gate/weight") for step in seen.steps]
    assert gate_weights == [None, None, 0, 0, 0.5, 0.5, 0.25, 0]
    assert trained.advantage.calls == trained.advantage.total_steps
    for metrics, logged in zip(reported.steps, seen.steps, strict=True):  # metrics of this step only
        assert metrics == pytest.approx({name: logged[name] for name in metrics})
        assert ("train/gate/weight" in metrics) == ("train/gate/weight" in logged)
