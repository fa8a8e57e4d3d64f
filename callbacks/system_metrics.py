"""System metrics while a stage trains, under the names that MLflow shows as such, and the memory in use."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from importlib.util import find_spec
from time import monotonic
from typing import Any

import lightning as L
import psutil
import torch

from contrastive_reasoning.progress import steps_done
from contrastive_reasoning.ranges import at_least

MEGABYTE = 1e6


class SystemMetrics(L.Callback):
    """Logs after the first step and then every ``seconds``, with the step that has just ended. Only watches.

    - ``cpu_utilization_percentage``: of all processors, since the last time.
    - ``system_memory_usage_megabytes``, ``system_memory_usage_percentage``: of the machine, including other processes.
    - ``disk_usage_percentage``, ``disk_available_megabytes``: of the disk with the run folder.
    - ``gpu_0_memory_usage_megabytes``, ``gpu_0_memory_usage_percentage``: of the device that the first process trains
      on; ``gpu_0_utilization_percentage`` too if NVIDIA's library for Python (``nvidia-ml-py``) is installed.

    Raises:
        ValueError: if ``seconds`` is negative.
    """

    def __init__(self, *, seconds: float) -> None:
        at_least(0, **{"callbacks.system_metrics.seconds": seconds})
        self.seconds = seconds
        self._next = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        psutil.cpu_percent()  # starts the interval that the next call measures
        self._next = 0.0

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        now = monotonic()
        if trainer.is_global_zero and now >= self._next:
            self._next = now + self.seconds
            memory, disk = psutil.virtual_memory(), psutil.disk_usage(trainer.default_root_dir)
            values = {
                "cpu_utilization_percentage": psutil.cpu_percent(),
                "system_memory_usage_megabytes": memory.used / MEGABYTE,
                "system_memory_usage_percentage": memory.percent,
                "disk_usage_percentage": disk.percent,
                "disk_available_megabytes": disk.free / MEGABYTE,
                **accelerator(pl_module.device),
            }
            named = {f"system/{name}": value for name, value in values.items()}
            for logger in trainer.loggers:  # the module would repeat it at the steps between
                logger.log_metrics(named, step=steps_done(trainer, pl_module))


def accelerator(device: torch.device) -> dict[str, float]:
    """Metrics of a CUDA device, all its processes together. Only this device is queried: a query occupies it."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    name, used = f"gpu_{device.index or 0}_", total - free
    values = {f"{name}memory_usage_megabytes": used / MEGABYTE, f"{name}memory_usage_percentage": 100 * used / total}
    if find_spec("pynvml") is not None:
        from pynvml import NVMLError  # pyright: ignore[reportMissingImports] - of an extra

        with suppress(NVMLError):  # a part of a card (MIG) reports no utilization
            values[f"{name}utilization_percentage"] = float(torch.cuda.utilization(device))
    return values


def memory_in_use(device: torch.device) -> float:
    """Megabytes of tensors on an accelerator; on a CPU the resident memory of the process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / MEGABYTE
    return psutil.Process().memory_info().rss / MEGABYTE


def peak_memory(device: torch.device) -> float:
    """The maximum of ``memory_in_use`` since the process began."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / MEGABYTE
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kibibytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE
