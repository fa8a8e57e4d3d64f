"""Modules under automatic optimization in a real Trainer for tests: a checkpoint of each step, and resumed runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_modules.optim import FiniteSteps
from tests.quiet import quiet_trainer
from tests.unit.lightning_modules.grpo_kit import assert_equal


def fit(
    module: FiniteSteps,
    data: dict[str, Any],
    folder: Path,
    *callbacks: Callback,
    steps: int = 4,
    resume: Path | None = None,
) -> None:
    """Trains without validation; ``data`` are arguments of ``Trainer.fit``."""
    keep = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    settings: dict[str, Any] = {"limit_val_batches": 0, "log_every_n_steps": 1, "default_root_dir": folder}
    trainer = quiet_trainer(max_steps=steps, enable_checkpointing=True, callbacks=[*callbacks, keep], **settings)
    trainer.fit(module, **data, ckpt_path=resume, weights_only=True)


def assert_resumes_with_dropout(
    make: Callable[[], FiniteSteps], data: Callable[[], dict[str, Any]], folder: Path
) -> None:
    """Checks that a stopped and resumed run has equal weights: its draws depend on the step, not on the generator."""

    def run(seed: int, **settings: Any) -> dict[str, Any]:
        module = make()
        linear = next(part for part in module.modules() if isinstance(part, torch.nn.Linear))
        linear.register_forward_hook(lambda part, _, output: torch.dropout(output, 0.4, part.training))
        torch.manual_seed(seed)
        fit(module, data(), folder / str(seed), **settings)
        return module.state_dict()

    start, whole, stopped = make().state_dict(), run(1, steps=6), run(2, steps=3)
    assert any(not torch.equal(weight, start[name]) for name, weight in stopped.items())
    assert any(not torch.equal(weight, stopped[name]) for name, weight in whole.items())
    assert_equal(run(3, steps=6, resume=folder / "2" / "step=3.ckpt"), whole)
