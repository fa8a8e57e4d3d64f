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
from callbacks.progress import Progress, known
from contrastive_reasoning.progress import Display, JSONLines, Lines, Quiet, phase_of


class Regression(L.LightningModule):
    """One weight, one number a step; NaN while validating, if that is wished for."""

    def __init__(self, *, validation: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.validation = validation

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = (self.weight * batch).square().mean()
        self.log("train/regression/loss", loss, batch_size=len(batch))
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val/regression/loss", batch.sum() * self.validation, batch_size=len(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Rollouts(Regression):
    """Counts its batches, of which the first only warms something up; the others hold two optimizer steps each."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.rollout_step = 0

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:  # type: ignore[override]
        optimizer: Any = self.optimizers()
        for _ in range(2 if self.rollout_step else 0):
            optimizer.step()
        self.rollout_step += 1


def trainer_with(progress: Progress) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu",
        max_steps=6,
        max_epochs=-1,
        callbacks=[progress],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def fit(progress: Progress, *, validation: float = 1.0) -> Regression:
    torch.manual_seed(0)
    module, data = Regression(validation=validation), DataLoader(torch.ones(8, 1), batch_size=2)  # type: ignore[arg-type]
    trainer_with(progress).fit(module, data, data)
    return module


def progress_by(display: Display) -> Progress:
    names = ["train/regression/loss", "val/regression/loss", "train/absent"]
    return Progress(stage="regression", metrics=names, window=5, display=display)


def lines(console: Console, *, seconds_between_lines: float) -> Progress:
    return progress_by(Lines(seconds_between_lines=seconds_between_lines, console=console))


def strict(text: str) -> list[dict[str, Any]]:
    """Every line as JSON that holds no NaN and no infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_a_log_gets_whole_lines_without_control_characters() -> None:
    stream = io.StringIO()
    fit(lines(Console(file=stream, width=40), seconds_between_lines=0.0))
    said = stream.getvalue().splitlines()
    steps = [line for line in said if "validating" not in line]
    assert len(steps) == 7, "one a step, and the last"
    assert steps[-1].startswith("regression 6/6 · 0:0")
    assert " · 0:00 left · " in steps[-1]
    assert steps[-1].endswith("regression/loss 0.107 · val/regression/loss 2")
    assert "\x1b" not in stream.getvalue()


def test_a_validation_says_how_far_it_is_before_training_too() -> None:
    stream = io.StringIO()
    data: Any = DataLoader(torch.ones(8, 1), batch_size=2)  # type: ignore[arg-type]
    progress = lines(Console(file=stream), seconds_between_lines=0.0)
    trainer_with(progress).validate(Regression(), data, verbose=False)
    said = stream.getvalue().splitlines()
    counts = [line.split(" · ")[0] for line in said]
    assert counts == [*(f"regression validating {done}/4" for done in (1, 2, 3, 4)), "regression validating 4/4"]
    assert said[-1].endswith("batches/s · val/regression/loss 2")


def test_a_log_with_long_intervals_gets_only_the_last_line() -> None:
    stream = io.StringIO()
    fit(lines(Console(file=stream), seconds_between_lines=1000.0))
    assert len(stream.getvalue().splitlines()) == 1


def test_a_terminal_gets_a_bar() -> None:
    stream = io.StringIO()
    fit(lines(Console(file=stream, force_terminal=True, width=160), seconds_between_lines=0.0))
    last = stream.getvalue().split("\r")[-1]
    for expected in ("regression", "6/6", "steps/s", "regression/loss 0.107"):
        assert expected in last


def test_a_program_gets_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    fit(progress_by(JSONLines(seconds_between_lines=0.0)), validation=float("nan"))
    said = strict(capsys.readouterr().out)
    steps = [line for line in said if line["phase"] is None]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6, 6]
    assert {(line["stage"], line["steps"], line["unit"]) for line in steps} == {("regression", 6, "steps")}
    last = steps[-1]
    assert last["seconds_left"] == 0
    assert last["seconds_gone"] >= 0 < last["rate"]
    assert last["train/regression/loss"] == pytest.approx(0.107, abs=1e-3)
    assert last["val/regression/loss"] is None, "a NaN"
    assert "train/absent" not in last
    validations = [line for line in said if line["phase"] == "validating"]
    assert [line["step"] for line in validations] == [1, 2, 3, 4, 4]


def test_steps_are_rollout_batches_where_those_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=8,  # two of them are never made
        max_epochs=1,
        callbacks=[progress_by(JSONLines(seconds_between_lines=0.0)), Throughput(window=3, tokens=None, peak_flops=1)],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Rollouts(), DataLoader(torch.ones(8, 1), batch_size=2))  # type: ignore[arg-type]
    steps = [line for line in strict(capsys.readouterr().out) if line["phase"] is None]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 4]
    assert {line["steps"] for line in steps} == {4}
    assert trainer.global_step == 6
    assert float(trainer.callback_metrics["train/throughput/seconds_left"]) == 0
    assert float(trainer.callback_metrics["train/throughput/steps_per_second"]) > 0


def test_quiet_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    fit(progress_by(Quiet()))
    assert capfd.readouterr().out == ""


def test_it_only_watches() -> None:
    watched = fit(lines(Console(file=io.StringIO()), seconds_between_lines=0.0))
    stream = io.StringIO()
    silent = lines(Console(file=stream), seconds_between_lines=0.0)
    silent.disable()
    assert torch.equal(watched.weight, fit(silent).weight)
    assert stream.getvalue() == ""


def test_the_bar_of_a_trainer_is_lent_to_who_keeps_it_waiting() -> None:
    """On a terminal the phase stands under the stage's own line, and goes."""
    stream = io.StringIO()
    progress = lines(Console(file=stream), seconds_between_lines=0.0)
    with phase_of(trainer_with(progress), "searching", unit="trajectories", total=128) as phase:
        phase.move(64)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("regression searching 64/128 · 0:00 gone · ")
    assert line.endswith(" trajectories/s")
    for nobody in (None, L.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")):
        with phase_of(nobody, "searching", unit="trajectories", total=128) as phase:
            phase.move(64)
    assert len(stream.getvalue().splitlines()) == 1


def test_what_was_not_logged_is_left_out() -> None:
    there = {"train/a": 0.5, "val/b": torch.tensor(2.0)}
    assert known(there, ["val/b", "c", "train/a"]) == {"val/b": 2.0, "train/a": 0.5}
