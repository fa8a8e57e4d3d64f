"""How the states of training are spread over the devices, from the choice of ``trainer``.

Unsharded every device keeps all of them. ZeRO (arXiv:1910.02054) gives each device a share: of the optimizer in stage
1, of the gradients too in stage 2, of the weights too in stage 3. DeepSpeed keeps a copy of the trained weights in fp32
beside both moments, in stages 1 and 2 also where the weights are in fp32 already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

BUCKET = 200_000_000
"""Numbers that DeepSpeed exchanges at once where nobody says it: the YAML files' and Lightning's own."""
LIVE = 1_000_000_000
"""Weights of stage 3 that are whole at a time at most, in numbers: DeepSpeed's own default."""
MILD_TO_STRONG = ("ddp", "zero1", "zero2", "zero3", "zero3_offload")
"""Trainers over several devices, each saving more memory than the one before, and costing more exchange."""


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """Raises ValueError for fewer than one device or an unknown stage."""

    trainer: str
    """The choice of the group ``trainer``."""
    devices: int
    stage: int
    """0: every device keeps all states."""
    offload_optimizer: bool
    offload_parameters: bool
    bucket_elements: int
    """Numbers that DeepSpeed exchanges at once."""

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"gpus must be at least 1, got {self.devices}")
        if self.stage not in (0, 1, 2, 3):
            raise ValueError(f"trainer={self.trainer}: a ZeRO stage is 0, 1, 2 or 3, got {self.stage}")

    @property
    def deepspeed(self) -> bool:
        return self.stage > 0

    @property
    def exchanges(self) -> bool:
        """Whether gradients pass between devices."""
        return self.devices > 1 or self.deepspeed


def sharding_of(trainer: str, config: Mapping[str, Any], *, gpus: int | None) -> Sharding:
    """What the choice ``trainer`` and its node say; ``gpus`` stands for their number of devices where given.

    A strategy that is a node of its own may say ``stage``, ``offload_optimizer``, ``offload_parameters`` and
    ``bucket_elements``; else the name of the choice does.
    """
    named = by_name(trainer, gpus or _count(config.get("devices", 1)) * _count(config.get("num_nodes", 1)))
    strategy = config.get("strategy")
    if not isinstance(strategy, Mapping):
        return named
    return replace(
        named,
        stage=strategy.get("stage", named.stage),
        offload_optimizer=bool(strategy.get("offload_optimizer", named.offload_optimizer)),
        offload_parameters=bool(strategy.get("offload_parameters", named.offload_parameters)),
        bucket_elements=int(strategy.get("bucket_elements", named.bucket_elements)),
    )


def by_name(trainer: str, devices: int) -> Sharding:
    """A trainer called ``zero2`` or ``zero3_offload``; any other name is unsharded."""
    found = re.match(r"zero(\d)(_offload)?", trainer)
    offload = found is not None and found[2] is not None
    return Sharding(
        trainer=trainer,
        devices=devices,
        stage=int(found[1]) if found else 0,
        offload_optimizer=offload,
        offload_parameters=offload,
        bucket_elements=BUCKET,
    )


def _count(value: Any) -> int:
    """A number of devices; ``auto`` and -1, which this machine would have to be asked for, count as one."""
    if isinstance(value, list | tuple):
        return len(value)
    if isinstance(value, str) and "," in value:
        return len([index for index in value.split(",") if index.strip()])
    return max(int(value), 1) if str(value).lstrip("-").isdigit() else 1
