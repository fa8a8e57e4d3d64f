"""Steps of critics and warm start with numbers that are not finite: skipped, counted; too many stop the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from callbacks.health import Health
from lightning_modules.optim import SKIPPED, FiniteSteps
from tests.quiet import quiet_trainer
from tests.unit.lightning_modules import test_critic, test_preference, test_warm_start
from tests.unit.lightning_modules.grpo_kit import Metrics
from tests.unit.lightning_modules.test_preference import checkpoint  # noqa: F401  a fixture

BAD = 2
"""The step with a number that is not finite."""
LOSS = {"warm_start": "train/warm_start/loss", "critic": "train/critic/loss", "preference": "train/critic/loss"}


def weights(module: FiniteSteps) -> Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in module.parameters()])


class Weights(Callback):
    """Records the module's weights and the optimizer's first moments after every step."""

    def __init__(self) -> None:
        self.after: list[Tensor] = []
        self.moments: list[Tensor] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.after.append(weights(pl_module))
        states = trainer.optimizers[0].state.values()
        self.moments.append(torch.cat([state["exp_avg"].flatten().clone() for state in states]))


class BadLoss(Callback):
    """Corrupts the computed loss of some steps; its gradient is correct."""

    def __init__(self, bad: float, *steps: int) -> None:
        self.bad, self.steps = bad, steps

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        name = "loss" if hasattr(type(pl_module), "loss") else "_loss_and_metrics"
        original = getattr(pl_module, name)

        def corrupted(*args: Any) -> Any:
            loss, more = original(*args)
            return (loss + self.bad if trainer.global_step + 1 in self.steps else loss), more

        setattr(pl_module, name, corrupted)


class BadGradient(BadLoss):
    """Corrupts one number of the gradient; the loss is correct."""

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        def corrupt(gradient: Tensor) -> Tensor:
            if trainer.global_step + 1 not in self.steps:
                return gradient
            corrupted = gradient.clone()
            corrupted.flatten()[0] = self.bad
            return corrupted

        next(parameter for parameter in pl_module.parameters() if parameter.requires_grad).register_hook(corrupt)


@pytest.fixture(params=["warm_start", "critic", "preference"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_module(kind: str, request: pytest.FixtureRequest) -> Callable[[int], FiniteSteps]:
    """Builds modules of this kind that may skip the given number of steps."""

    def make(max_skipped: int) -> FiniteSteps:
        if kind == "warm_start":
            return test_warm_start.module(max_skipped_steps=max_skipped)
        if kind == "critic":
            return test_critic.module(max_skipped_steps=max_skipped)
        encoder = request.getfixturevalue("checkpoint")
        return test_preference.module(test_preference.critic(encoder), max_skipped_steps=max_skipped)

    return make


def fit(kind: str, module: FiniteSteps, folder: Path, *callbacks: Callback, resume: Path | None = None) -> None:
    keep = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    settings: dict[str, Any] = {"limit_val_batches": 0, "log_every_n_steps": 1, "default_root_dir": folder}
    trainer = quiet_trainer(max_steps=4, enable_checkpointing=True, callbacks=[*callbacks, keep], **settings)
    data: dict[str, Any] = {
        "warm_start": lambda: {"datamodule": test_warm_start.data()},
        "critic": lambda: {"train_dataloaders": test_critic.loader(test_critic.pairs(), 4)},
        "preference": lambda: {"datamodule": test_preference.pairs()},
    }[kind]()
    trainer.fit(module, **data, ckpt_path=resume, weights_only=True)


@pytest.mark.parametrize(("fault", "bad"), [(BadLoss, float("inf")), (BadGradient, float("nan"))])
def test_non_finite_step_is_skipped_and_counted_after_resume(
    kind: str, make_module: Callable[[int], FiniteSteps], fault: type[BadLoss], bad: float, tmp_path: Path
) -> None:
    seen, metrics = Weights(), Metrics()
    fit(kind, make_module(1), tmp_path, fault(bad, BAD), seen, metrics, Health(limits={}))
    assert torch.equal(seen.after[BAD - 1], seen.after[BAD - 2]), "bit for bit as before"
    assert torch.equal(seen.moments[BAD - 1], seen.moments[BAD - 2])
    assert not torch.equal(seen.after[BAD], seen.after[BAD - 1]), "and then it goes on"
    assert seen.after[-1].isfinite().all()
    assert [step[SKIPPED] for step in metrics.steps] == [0, 1, 1, 1]
    losses = [step[LOSS[kind]] for step in metrics.steps]
    assert all(torch.tensor(losses).isfinite())
    if fault is BadLoss:  # the step repeats the last logged value, as Lightning does
        assert losses[1] == losses[0] != losses[2]
        resumed = Metrics()
        fit(kind, make_module(1), tmp_path / "more", resumed, resume=tmp_path / "step=2.ckpt")
        assert [step[SKIPPED] for step in resumed.steps] == [1, 1]


def test_too_many_skipped_steps_raise_and_write_batch(
    kind: str, make_module: Callable[[int], FiniteSteps], tmp_path: Path
) -> None:
    seen, module = Weights(), make_module(1)
    with pytest.raises(FloatingPointError, match=r"^gradient .* 1 steps") as error:
        fit(kind, module, tmp_path, BadLoss(float("nan"), 2, 3), seen)
    assert torch.equal(weights(module), seen.after[0])
    left = torch.load(tmp_path / "skipped" / "step=000003.rank0.pt", weights_only=True)
    assert str(tmp_path / "skipped" / "step=000003.rank0.pt") in str(error.value)
    expected = {
        "warm_start": {"prompts", "completions"},
        "critic": {"state_actions", "goals", "positive", "candidate"},
        "preference": {"chosen", "rejected", "prefix"},
    }
    assert set(left) == expected[kind]
    if kind == "critic":
        assert torch.equal(left["state_actions"], test_critic.pairs().state_actions)
