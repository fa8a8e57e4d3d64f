"""Progress of the steps and validations of a stage, on each display."""

from __future__ import annotations

import io
import json
from typing import Any

import lightning as L
import pytest
import torch
from rich.console import Console
from torch.utils.data import DataLoader

from callbacks.cost import Throughput
from callbacks.progress import Progress
from contrastive_reasoning.progress import JSONLines, Lines, Quiet, phase_of
from tests.quiet import quiet_trainer


class Regression(L.LightningModule):
    """One weight and one metric per step. The validation loss is NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = (self.weight * batch).square().mean()
        self.log("train/regression/loss", loss, batch_size=len(batch))
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val/regression/loss", batch.sum() * float("nan"), batch_size=len(batch))
        self.log("val/regression/sum", batch.sum(), batch_size=len(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Rollouts(Regression):
    """Counts its batches. The first is a warm-up without optimizer steps; the others have two each."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.rollout_step = 0

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:  # type: ignore[override]
        optimizer: Any = self.optimizers()
        for _ in range(2 if self.rollout_step else 0):
            optimizer.step()
        self.rollout_step += 1


DATA: Any = DataLoader(torch.ones(8, 1), batch_size=2)  # type: ignore[arg-type]


def trainer_with(display: Quiet, *callbacks: L.Callback, **settings: Any) -> L.Trainer:
    names = ["train/regression/loss", "val/regression/loss", "val/regression/sum", "train/absent"]
    shown = Progress(stage="regression", metrics=names, window=5, display=display)
    return quiet_trainer(**{"callbacks": [shown, *callbacks], "enable_progress_bar": True, "max_steps": 6} | settings)


def fit(display: Quiet) -> Regression:
    torch.manual_seed(0)
    module = Regression()
    trainer_with(display).fit(module, DATA, DATA)
    return module


def lines(stream: io.StringIO, seconds: float = 0.0, **console: Any) -> Lines:
    return Lines(seconds_between_lines=seconds, console=Console(file=stream, **console))


def strict(text: str) -> list[dict[str, Any]]:
    """Each line as JSON; NaN and infinity fail the test."""
    return [json.loads(line, parse_constant=lambda constant: pytest.fail(constant)) for line in text.splitlines()]


def test_lines_display_writes_last_numbers_in_one_whole_line() -> None:
    stream = io.StringIO()
    fit(lines(stream, 1000.0, width=40))
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("regression 6/6 · 0:0")
    assert " · 0:00 left · " in line
    assert line.endswith("regression/loss 0.107 · val/regression/loss nan · val/regression/sum 2")
    assert "\x1b" not in line


def test_validation_before_training_shows_its_progress() -> None:
    stream = io.StringIO()
    trainer_with(lines(stream)).validate(Regression(), DATA, verbose=False)
    output = stream.getvalue().splitlines()
    counts = [line.split(" · ")[0].removeprefix("regression validating ") for line in output]
    assert counts == ["1/4", "2/4", "3/4", "4/4", "4/4"]
    assert output[-1].endswith("batches/s · val/regression/loss nan · val/regression/sum 2")


def test_json_lines_display_writes_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    fit(JSONLines(seconds_between_lines=0.0))
    output = strict(capsys.readouterr().out)
    steps = [line for line in output if line["phase"] is None]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6, 6]
    assert {(line["stage"], line["steps"], line["unit"]) for line in steps} == {("regression", 6, "steps")}
    last = steps[-1]
    assert last["seconds_left"] == 0
    assert last["seconds_gone"] >= 0 < last["rate"]
    assert last["train/regression/loss"] == pytest.approx(0.107, abs=1e-3)
    assert last["val/regression/loss"] is None, "a NaN"
    assert "train/absent" not in last
    validations = [line for line in output if line["phase"] == "validating"]
    assert [line["step"] for line in validations] == [1, 2, 3, 4, 4]


def test_progress_counts_rollout_batches_if_module_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    throughput, display = Throughput(window=3, tokens=None, peak_flops=1), JSONLines(seconds_between_lines=0.0)
    trainer = trainer_with(display, throughput, max_steps=8, max_epochs=1)  # two of these steps never happen
    trainer.fit(Rollouts(), DATA)
    steps = [line for line in strict(capsys.readouterr().out) if line["phase"] is None]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 4]
    assert {line["steps"] for line in steps} == {4}
    assert trainer.global_step == 6
    assert float(trainer.callback_metrics["train/throughput/seconds_left"]) == 0
    assert float(trainer.callback_metrics["train/throughput/steps_per_second"]) > 0


def test_quiet_display_prints_nothing_and_lines_leave_weights_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    quiet = fit(Quiet())
    assert capfd.readouterr().out == ""
    assert torch.equal(fit(lines(io.StringIO())).weight, quiet.weight)


def test_phase_of_shows_phase_on_display_of_stage() -> None:
    stream = io.StringIO()
    for trainer in (trainer_with(lines(stream)), None, quiet_trainer()):
        with phase_of(trainer, "searching", unit="trajectories", total=128) as phase:
            phase.move(64)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("regression searching 64/128 · 0:00 gone · ")
    assert line.endswith(" trajectories/s")
