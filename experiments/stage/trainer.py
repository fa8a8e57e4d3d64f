"""Lightning's trainer as the configuration says, and the device on which it has a policy in this process."""

from __future__ import annotations

import os
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig

from experiments.assemble import AssemblyError, build
from experiments.system.first_line import first_line


def make_trainer(config: DictConfig, **arguments: Any) -> Trainer:
    """The trainer with these arguments besides.

    Raises:
        AssemblyError: where it refuses them, or this machine has no such device.
    """
    if config.trainer.accelerator == "cpu":  # or deepspeed, where it is used, takes a GPU that it finds
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    make = build(config, "trainer")
    try:
        return make(**arguments)
    except (MisconfigurationException, ValueError) as error:
        raise AssemblyError(f"trainer (accelerator={config.trainer.accelerator}): {first_line(error)}") from error


def device_of(config: DictConfig) -> torch.device:
    """Where the trainer has what it trains, on this rank; of CUDA's it is the current one from then on.

    What writes outside a fit goes there itself: a policy is loaded on the CPU, and back on it when a fit has ended.

    Raises:
        AssemblyError: as ``make_trainer``.
    """
    trainer = make_trainer(config, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    device = trainer.strategy.root_device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def idle(device: torch.device, gpus: int, *, taken: int) -> str | None:
    """What is worth saying before a run begins on ``device``; None: nothing.

    Args:
        device: of the trainer.
        gpus: that this process sees.
        taken: devices of this machine that the run's ranks have.
    """
    if device.type == "cpu" and gpus:
        return f"GPUs of this machine that stand idle: {gpus}; the trainer's device is the CPU (trainer=gpu takes one)"
    if device.type == "cuda" and gpus > taken:
        alone = gpus - taken
        return f"GPUs of this machine that this run leaves alone: {alone} of {gpus} (trainer.devices={gpus} takes all)"
    return None
