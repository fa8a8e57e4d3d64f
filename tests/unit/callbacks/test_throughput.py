from __future__ import annotations

import time

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from callbacks.cost import Throughput
from contrastive_reasoning.progress import Pace

STEP_SECONDS = 0.02


class Sleeper(L.LightningModule):
    """A step takes 20 ms and has 100 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        time.sleep(STEP_SECONDS)
        self.log("train/sleeper/tokens", 100.0, batch_size=len(batch))
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def rates(tokens: str | None) -> dict[str, float]:
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=8,
        max_epochs=-1,
        callbacks=[Throughput(window=4, tokens=tokens, peak_flops=None)],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(Sleeper(), DataLoader(torch.ones(4, 1), batch_size=1))  # type: ignore[arg-type]
    return {name: float(value) for name, value in trainer.callback_metrics.items() if "throughput" in name}


def test_rates_of_a_step_of_known_length() -> None:
    logged = rates("train/sleeper/tokens")
    steps = logged["train/throughput/steps_per_second"]
    assert 0 < steps <= 1 / STEP_SECONDS
    assert logged["train/throughput/tokens_per_second"] == pytest.approx(100 * steps, rel=1e-3)
    assert logged["train/throughput/seconds_left"] == 0


def test_without_a_counter_there_are_no_tokens() -> None:
    assert "train/throughput/tokens_per_second" not in rates(None)


def test_pace_forgets_what_lies_before_its_window() -> None:
    pace = Pace(2)
    assert pace.rate is None
    for step, now in enumerate((0.0, 100.0, 101.0, 102.0)):
        pace.mark(step, now)
    assert pace.rate == 1.0
    assert pace.seconds_left(10) == 7.0
    assert pace.seconds_left(-1) is None
    assert pace.seconds_left(2) == 0.0


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window must be at least 1 step, got 0"):
        Throughput(window=0, tokens=None, peak_flops=None)
