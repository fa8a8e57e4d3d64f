"""Rejects a trainer that cannot run an experiment on this machine, and advises a trainer and number of devices.

A GPU trainer needs GPUs with enough memory. A CPU trainer needs enough memory and must finish within ``PATIENCE``: GRPO
with billions of parameters fits into the memory of many servers, but would run there for years. The formulas are those
of ``make plan``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.plan.learner import MILD_TO_STRONG, Sharding, sharding_of
from experiments.plan.page import H100, MFU, fullest_on_host, hours_of, remedy, what_fits, work_of_step
from experiments.plan.stages import GIB, Experiment, experiment_of, mildest
from experiments.system.devices import host_memory

CARD = 80.0
"""GiB of the advised GPU."""
NODE = 8
"""GPUs of a node, as in both tracks of CLIPO (its Table 8)."""
CPU_TFLOPS = 1.0
"""10¹² operations per second of a server's CPU at best."""
PATIENCE, DAY = 30 * 24.0, 24.0
"""The most hours of GRPO on a CPU before it is rejected, and on one GPU before a node is advised."""
ERROR = 1.15
"""Greatest ratio between measured and planned memory, on a CPU (docs/plan.md); it was not measured on a GPU."""


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
    alone, node = (experiment_of(config, on_cpu=False, devices=devices) for devices in (1, NODE))
    found = mildest(alone, ["gpu"], devices=1, memory=CARD)
    if found is None or _hours(alone, devices=1, tflops=H100 * MFU) > DAY:
        found = mildest(node, MILD_TO_STRONG, devices=NODE, memory=CARD)
    return None if found is None else Advice(sharding=found[0], memory=found[1])


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
        key = "trainer" if trainer == accelerator else "trainer.accelerator"
        return f"{key}={accelerator}: torch finds no GPU on this machine; scale=workstation or {key}=cpu takes its CPU"
    if cuda and accelerator in ("cuda", "gpu", "auto"):
        return _too_large_for_gpu(config, trainer, node)
    if accelerator not in ("cpu", "auto"):
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
    needs = f"needs {found.memory:.1f} GiB on {'one GPU' if count == 1 else f'each of {count} GPUs'} (make plan)"
    if found.sharding.trainer == trainer:
        return f"{slow}, and torch finds no GPU on this machine; {found.overrides} {needs}"
    return f"{slow}; use {found.overrides}, which {needs}"


def _too_large_for_gpu(config: Any, trainer: str, node: Mapping[str, Any]) -> str | None:
    """Returns why an experiment does not fit into this machine's GPUs; None if it does, or if its size is unknown.

    Warns instead if it exceeds the memory by less than the error of the formulas. A single GPU is planned with one
    rollout in a micro-batch, because GRPO halves larger ones there that do not fit. A vLLM server is left out, because
    it may have a GPU of its own.
    """
    strategy = node.get("strategy")
    counted = "stage" in strategy if isinstance(strategy, Mapping) else str(strategy).startswith(("auto", "ddp"))
    if not counted:  # a user's own strategy, such as fsdp
        return None
    sharding = sharding_of(trainer, node, gpus=None)
    halves = sharding.devices == 1 and not isinstance(strategy, Mapping)
    has = torch.cuda.get_device_properties(0).total_memory / GIB
    try:
        plan = _without_server(experiment_of(config, on_cpu=False, devices=sharding.devices))
        smallest = OmegaConf.merge(config, {"budget": {"grpo": {"microbatch_tokens": 1}}})
        least = _without_server(experiment_of(smallest, on_cpu=False, devices=1)) if halves else plan
        if not least.moments(sharding):
            return None
        worst, needs = least.fullest(sharding)
        if needs <= has:
            return None
        sentence = (
            f"trainer={trainer}: {config.name} needs {needs:.1f} GiB on a GPU, in {worst.stage} {worst.name}, and this "
            f"one has {has:.1f}; {what_fits(plan, sharding.devices, has)} (make plan)"
        )
    except (ValueError, OmegaConfBaseException):  # a model of unknown shape, or a user's own part
        return None
    if needs > has * ERROR:
        return sentence
    warnings.warn(sentence, stacklevel=2)
    return None


def _without_server(plan: Experiment) -> Experiment:
    return plan if plan.server is None else replace(plan, server=0)


def _too_large(plan: Experiment, trainer: str, sharding: Sharding) -> str | None:
    """Returns why a plan does not fit into this machine's memory; None if it does."""
    if not plan.moments(sharding):
        return None
    worst, needs = fullest_on_host(plan, sharding)
    if needs <= (has := host_memory()):
        return None
    return (
        f"trainer={trainer}: {plan.config.name} needs {needs:.1f} GiB, in {worst.stage} {worst.name}, and this machine "
        f"has {has:.1f}; {remedy(plan, worst)} (make plan)"
    )


def _hours(plan: Experiment, *, devices: int, tflops: float) -> float:
    """Returns the hours of all GRPO steps; 0 for an experiment without GRPO."""
    if "grpo" not in plan.config.stages:
        return 0.0
    return hours_of(plan, work_of_step(plan), devices=devices, tflops=tflops)
