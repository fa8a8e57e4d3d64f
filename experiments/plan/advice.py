"""Rejects a trainer that cannot run an experiment on this machine, and advises a trainer and number of devices.

A GPU trainer needs a GPU. A CPU trainer needs enough memory and must finish within ``PATIENCE``: GRPO with billions of
parameters fits into the memory of many servers, but would run there for years. The formulas are those of ``make plan``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf.errors import OmegaConfBaseException

from experiments.plan.learner import MILD_TO_STRONG, Sharding, by_name, sharding_of
from experiments.plan.page import GIB, H100, MFU, fullest_on_host, hours_of, setting_behind, work_of_step
from experiments.plan.stages import Experiment, experiment_of
from experiments.system.devices import host_memory

CARD = 80.0
"""GiB of the advised GPU."""
LEFT_FREE = 0.1
"""Share of ``CARD`` left free: the formulas are within 15 % of measurements, most of them far closer."""
NODE = 8
"""GPUs of a node, as in both tracks of CLIPO (its Table 8)."""
CPU_TFLOPS = 1.0
"""10¹² operations per second of a server's CPU at best."""
PATIENCE, DAY = 30 * 24.0, 24.0
"""The most hours of GRPO on a CPU before it is rejected, and on one GPU before a node is advised."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A trainer with which an experiment fits, and the GiB of its fullest moment on each device."""

    sharding: Sharding
    memory: float

    @property
    def overrides(self) -> str:
        devices = "" if self.sharding.devices == 1 else f" trainer.devices={self.sharding.devices}"
        return f"trainer={self.sharding.trainer}{devices}"


def advice(config: Any) -> Advice | None:
    """Returns one GPU if the experiment fits and ends within a day, else the mildest trainer that fits on a node.

    Returns None if none fits. Raises ValueError if the shape of a model is unknown.
    """
    for sharding in (by_name("gpu", 1), *(by_name(name, NODE) for name in MILD_TO_STRONG)):
        plan = experiment_of(config, on_cpu=False, devices=sharding.devices)
        memory = max((one.total(on_cpu=False) for one in plan.moments(sharding)), default=0) / GIB
        slow = sharding.devices == 1 and _hours(plan, devices=1, tflops=H100 * MFU) > DAY
        if memory <= CARD * (1 - LEFT_FREE) and not slow:
            return Advice(sharding=sharding, memory=memory)
    return None


def refusal(config: Any, trainer: str, node: Mapping[str, Any]) -> str | None:
    """Returns why this trainer cannot run the experiment here in acceptable time, and which one can; None if it can.

    Also returns None if the cost is unknown: a model of unknown shape or a user's own part.

    Args:
        config: the composed configuration of the experiment.
        trainer: the choice of the group ``trainer``.
        node: the resolved content of that choice.
    """
    accelerator, cuda = node.get("accelerator"), torch.cuda.is_available()
    if (accelerator == "cuda" and not cuda) or (accelerator == "gpu" and not cuda and not torch.mps.is_available()):
        return f"trainer={trainer}: torch finds no GPU on this machine; scale=workstation or trainer=cpu takes its CPU"
    if accelerator != "cpu" and (accelerator != "auto" or cuda):
        return None
    sharding = sharding_of(trainer, node, gpus=None)
    devices = sharding.devices
    try:
        plan = experiment_of(config, on_cpu=True, devices=devices)
        hours = _hours(plan, devices=devices, tflops=CPU_TFLOPS)
        if hours <= PATIENCE:
            return _too_large(plan, trainer, sharding)
        found = advice(config)
    except (ValueError, OmegaConfBaseException):  # a model of unknown shape, or a user's own part
        return None
    slow = f"trainer={trainer}: GRPO of {config.name} at this size would take {hours / 24:,.0f} days on a CPU"
    if found is None:
        return f"{slow}, and no trainer fits on {NODE} GPUs of {CARD:g} GB: make plan lists what to lower"
    count = found.sharding.devices
    return (
        f"{slow}; use {found.overrides}, which needs {found.memory:.1f} GiB on "
        f"{'one GPU' if count == 1 else f'each of {count} GPUs'} (make plan)"
    )


def _too_large(plan: Experiment, trainer: str, sharding: Sharding) -> str | None:
    """Returns why a plan does not fit into this machine's memory; None if it does."""
    if not plan.moments(sharding):
        return None
    worst, needs = fullest_on_host(plan, sharding)
    if needs <= (has := host_memory()):
        return None
    return (
        f"trainer={trainer}: {plan.config.name} needs {needs:.1f} GiB, in {worst.stage} {worst.name}, and this machine "
        f"has {has:.1f}; what to lower: {setting_behind(worst)} (make plan)"
    )


def _hours(plan: Experiment, *, devices: int, tflops: float) -> float:
    """Returns the hours of all GRPO steps; 0 for an experiment without GRPO."""
    if "grpo" not in plan.config.stages:
        return 0.0
    return hours_of(plan, work_of_step(plan), devices=devices, tflops=tflops)
