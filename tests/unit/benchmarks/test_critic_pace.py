"""The step that is timed is the one that trains: what Lightning does with the same module and batches."""

from __future__ import annotations

import lightning as L
import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from benchmarks.critic_pace import critic_pairs_per_second, train_step
from experiments.assemble import build
from experiments.schema import register


@pytest.fixture
def config() -> DictConfig:
    register()
    over = ["datamodule.batch_size=8", "datamodule.validation_batches=1"]
    with initialize_config_module("conf", version_base="1.3"):
        return compose("config", ["experiment=critic_joint", "critic.width=16", "critic.blocks=1", *over])


def test_timed_steps_leave_the_weights_of_a_fit(config: DictConfig) -> None:
    fitted, data = build(config, "pretraining"), build(config, "datamodule")
    trainer = L.Trainer(
        max_steps=3,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    trainer.fit(fitted, datamodule=data)
    timed = build(config, "pretraining")
    parts = timed.configure_optimizers()
    for number in range(3):
        assert train_step(timed, parts["optimizer"], data.batch(number), None) == 8
        parts["lr_scheduler"]["scheduler"].step()
    torch.testing.assert_close(timed.critic.state_dict(), fitted.critic.state_dict())


def test_pace_counts_anchors(config: DictConfig) -> None:
    assert 0 < critic_pairs_per_second(config, steps=3, autocast=torch.bfloat16) < 1e7
