from __future__ import annotations

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from callbacks.health import Health


class Scripted(L.LightningModule):
    """Logs the losses and the ratio it is told to."""

    def __init__(self, losses: list[float], ratio: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.losses, self.ratio = losses, ratio

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.weight.sum() * self.losses[self.global_step]
        self.log_dict({"train/objective/loss": loss, "train/objective/ratio_max": self.ratio}, batch_size=1)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module: Scripted, *health: Health) -> L.Trainer:
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=len(module.losses),
        callbacks=[*health],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(module, DataLoader(torch.ones(8, 1), batch_size=1))  # type: ignore[arg-type]
    return trainer


def test_leaving_a_range_is_counted_and_said_once() -> None:
    limits = {"train/objective/ratio_max": [None, 10.0], "train/absent": [0.0, 1.0]}
    with pytest.warns(UserWarning, match=r"ratio_max is 25 at step 1, outside of \[None, 10.0\]") as said:
        trainer = fit(Scripted([1.0] * 4, ratio=25.0), Health(limits=limits))
    assert sum("ratio_max" in str(warning.message) for warning in said) == 1
    assert trainer.callback_metrics["train/health/objective_ratio_max"] == 1
    assert "train/health/absent" not in trainer.callback_metrics


def test_within_the_range_the_count_is_zero() -> None:
    trainer = fit(Scripted([1.0] * 2), Health(limits={"train/objective/ratio_max": [0.5, 10.0]}))
    assert trainer.callback_metrics["train/health/objective_ratio_max"] == 0


def test_it_only_watches() -> None:
    with_it, without = Scripted([1.0, 2.0, 3.0]), Scripted([1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="ratio_max is 1 at step"):
        fit(with_it, Health(limits={"train/objective/ratio_max": [0.0, 0.5]}))
    fit(without)
    assert torch.equal(with_it.weight, without.weight)


def test_a_limit_that_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match=r"limits of train/a must be \[low, high\], got \[1.0\]"):
        Health(limits={"train/a": [1.0]})
