from __future__ import annotations

import io

import lightning as L
import pytest
import torch
from rich.console import Console
from torch.utils.data import DataLoader

from callbacks.progress import Progress, clock, shown


class Regression(L.LightningModule):
    """One weight, one number a step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = (self.weight * batch).square().mean()
        self.log("train/regression/loss", loss, batch_size=len(batch))
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val/regression/loss", batch.sum(), batch_size=len(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(progress: Progress) -> Regression:
    torch.manual_seed(0)
    module, data = Regression(), DataLoader(torch.ones(8, 1), batch_size=2)  # type: ignore[arg-type]
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=6,
        max_epochs=-1,
        callbacks=[progress],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data, data)
    return module


def progress_on(console: Console, *, seconds_between_lines: float) -> Progress:
    names = ["train/regression/loss", "val/regression/loss", "train/absent"]
    return Progress(metrics=names, window=5, seconds_between_lines=seconds_between_lines, console=console)


def test_a_log_gets_whole_lines_without_control_characters() -> None:
    stream = io.StringIO()
    fit(progress_on(Console(file=stream, width=40), seconds_between_lines=0.0))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 7, "one a step, and the last"
    assert lines[-1].startswith("Regression 6/6 · 0:0")
    assert " · 0:00 left · " in lines[-1]
    assert lines[-1].endswith("regression/loss 0.107 · val/regression/loss 2")
    assert "\x1b" not in stream.getvalue()


def test_a_quiet_log_gets_only_the_last_line() -> None:
    stream = io.StringIO()
    fit(progress_on(Console(file=stream), seconds_between_lines=1000.0))
    assert len(stream.getvalue().splitlines()) == 1


def test_a_terminal_gets_a_bar() -> None:
    stream = io.StringIO()
    fit(progress_on(Console(file=stream, force_terminal=True, width=160), seconds_between_lines=0.0))
    last = stream.getvalue().split("\r")[-1]
    for expected in ("Regression", "6/6", "steps/s", "regression/loss 0.107"):
        assert expected in last


def test_it_only_watches() -> None:
    watched = fit(progress_on(Console(file=io.StringIO()), seconds_between_lines=0.0))
    silent = progress_on(Console(file=io.StringIO()), seconds_between_lines=0.0)
    silent.disable()
    assert torch.equal(watched.weight, fit(silent).weight)


@pytest.mark.parametrize(("seconds", "text"), [(7.2, "0:07"), (750, "12:30"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_shown_leaves_out_what_was_not_logged() -> None:
    assert shown({"train/a": 0.12345, "val/b": torch.tensor(2.0)}, ["val/b", "c", "train/a"]) == "val/b 2 · a 0.123"
