"""The trust gate in a real Trainer: without trust a whole run is plain GRPO, bit for bit; with it, not; it resumes."""

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


class Spoken:
    """The share of digits, and a step on the first half of every completion whose value is what its tokens add up to;
    says of itself how good these values are."""

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
    return module(reward=Spoken(auroc), advantage=TrustGate(advantage=process, **settings | changes))


def test_a_run_without_trust_is_bitwise_plain_grpo() -> None:
    plain, closed, wide_open = module(advantage=OUTCOME), gated(0.6), gated(0.9)
    seen = Metrics()
    fit(plain, 6)
    fit(closed, 6)
    fit(wide_open, 6, seen)
    assert torch.equal(weights(closed), weights(plain))
    assert not torch.equal(weights(wide_open), weights(plain)), "the same values, trusted"
    assert [step["train/gate/weight"] for step in seen.steps] == [0, 0, 0.5, 0.5, 0.25, 0]


def test_a_resumed_run_is_bitwise_the_uninterrupted_one_gate_and_all(tmp_path: Path) -> None:
    whole = gated(0.9)
    fit(whole, 5)
    saving = ModelCheckpoint(dirpath=tmp_path, filename="last", every_n_train_steps=3)
    fit(gated(0.9), 5, saving, stop_after=3)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["advantage"]["calls"] == 3
    resumed = gated(0.9)
    fit(resumed, 5, resume=tmp_path / "last.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.advantage.state_dict() == whole.advantage.state_dict()


class WarmedUp(Spoken):
    """Has two batches for itself before the policy learns."""

    warmup_steps = 2

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class Reported(Callback):
    """What the module says that each step logged, as a callback finds it."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.steps.append(dict(pl_module.reported))


def test_after_a_warm_up_the_last_batch_that_teaches_has_weight_zero() -> None:
    """The annealing counts the batches that teach: 2 of a warm-up, then 6 as without one."""
    trained, seen, reported = gated(0.9), Metrics(), Reported()
    trained.reward = WarmedUp(0.9)
    trainer = fit(trained, 6, seen, reported, stop_after=6)
    assert (trained.rollout_step, trainer.global_step) == (8, 6)
    taught = [step.get("train/gate/weight") for step in seen.steps]
    assert taught == [None, None, 0, 0, 0.5, 0.5, 0.25, 0]
    assert trained.advantage.calls == trained.advantage.total_steps
    for said, logged in zip(reported.steps, seen.steps, strict=True):  # of this step, and nothing older
        assert said == pytest.approx({name: logged[name] for name in said})
        assert ("train/gate/weight" in said) == ("train/gate/weight" in logged)
