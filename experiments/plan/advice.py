"""Which trainer and how many devices an experiment takes, for who asks a machine to do what it cannot.

A GPU must be there, and for a CPU the memory. Whether a CPU can is then a matter of time: GRPO with a policy of
billions fits into the memory of many a server, and would run there for years. The formulas are those of ``make plan``.
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
"""GiB of a GPU that is advised."""
LEFT_FREE = 0.1
"""Share of it that a plan leaves free: its formulas are within 15 % of what is measured, most of them far closer."""
NODE = 8
"""GPUs, as both tracks of CLIPO have (its Table 8)."""
CPU_TFLOPS = 1.0
"""10¹² operations a second, of a server's CPU at its best."""
PATIENCE, DAY = 30 * 24.0, 24.0
"""Hours that GRPO may take on a CPU before it is refused, and on one GPU before a node is advised."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A trainer under which an experiment fits, and GiB of its fullest moment on each device."""

    sharding: Sharding
    memory: float

    @property
    def overrides(self) -> str:
        devices = "" if self.sharding.devices == 1 else f" trainer.devices={self.sharding.devices}"
        return f"trainer={self.sharding.trainer}{devices}"


def advice(config: Any) -> Advice | None:
    """One GPU where the experiment fits and ends within a day, else the mildest trainer that fits on a node.

    None where none does. Raises ValueError where the shape of a model is not known.
    """
    for sharding in (by_name("gpu", 1), *(by_name(name, NODE) for name in MILD_TO_STRONG)):
        plan = _plan(config, devices=sharding.devices, on_cpu=False)
        memory = max((one.total(on_cpu=False) for one in plan.moments(sharding)), default=0) / GIB
        slow = sharding.devices == 1 and _hours(plan, devices=1, tflops=H100 * MFU) > DAY
        if memory <= CARD * (1 - LEFT_FREE) and not slow:
            return Advice(sharding=sharding, memory=memory)
    return None


def refusal(config: Any, trainer: str, node: Mapping[str, Any]) -> str | None:
    """Why this trainer cannot run it here, or would never end, and which one would; None where it may, or if unknown.

    Args:
        config: of the experiment, composed.
        trainer: the choice of that group.
        node: its content, resolved.
    """
    accelerator, cuda = node.get("accelerator"), torch.cuda.is_available()
    if (accelerator == "cuda" and not cuda) or (accelerator == "gpu" and not cuda and not torch.mps.is_available()):
        return f"trainer={trainer}: torch finds no GPU on this machine; scale=workstation or trainer=cpu takes its CPU"
    if accelerator != "cpu" and (accelerator != "auto" or cuda):
        return None
    sharding = sharding_of(trainer, node, gpus=None)
    devices = sharding.devices
    try:
        plan = _plan(config, devices=devices, on_cpu=True)
        hours = _hours(plan, devices=devices, tflops=CPU_TFLOPS)
        if hours <= PATIENCE:
            return _too_large(plan, trainer, sharding)
        found = advice(config)
    except (ValueError, OmegaConfBaseException):  # a model whose shape is not at hand, or a part of one's own
        return None
    slow = f"trainer={trainer}: GRPO of {config.name} at this size would take {hours / 24:,.0f} days on a CPU"
    if found is None:
        return f"{slow}, and no trainer fits on {NODE} GPUs of {CARD:g} GB: make plan says what to lower"
    count = found.sharding.devices
    return (
        f"{slow}; use {found.overrides}, which needs {found.memory:.1f} GiB on "
        f"{'one GPU' if count == 1 else f'each of {count} GPUs'} (make plan)"
    )


def _too_large(plan: Experiment, trainer: str, sharding: Sharding) -> str | None:
    """Why it does not fit into this machine's memory; None where it does."""
    if not plan.moments(sharding):
        return None
    worst, needs = fullest_on_host(plan, sharding)
    if needs <= (has := host_memory()):
        return None
    return (
        f"trainer={trainer}: {plan.config.name} needs {needs:.1f} GiB, in {worst.stage} {worst.name}, and this machine "
        f"has {has:.1f}; what to lower: {setting_behind(worst)} (make plan)"
    )


def _plan(config: Any, *, devices: int, on_cpu: bool) -> Experiment:
    return experiment_of(config, on_cpu=on_cpu, devices=devices, prompt_tokens=None, completion_tokens=None)


def _hours(plan: Experiment, *, devices: int, tflops: float) -> float:
    """Of all GRPO steps; 0 for an experiment without."""
    if "grpo" not in plan.config.stages:
        return 0.0
    return hours_of(plan, work_of_step(plan), devices=devices, tflops=tflops)
