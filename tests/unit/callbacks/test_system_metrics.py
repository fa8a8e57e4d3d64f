"""The machine's numbers in a real fit: named as MLflow names them, and not at every step."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from callbacks.system_metrics import SystemMetrics, accelerator
from experiments.run_folder.logger import RunFolderLogger
from tests.unit.lightning_modules.grpo_kit import fit, module

NAMES = {
    "system/cpu_utilization_percentage",
    "system/system_memory_usage_megabytes",
    "system/system_memory_usage_percentage",
    "system/disk_usage_percentage",
    "system/disk_available_megabytes",
}


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, [1, 2, 3]), (3600.0, [1])])
def test_a_run_says_what_its_machine_is_doing(tmp_path: Path, seconds: float, steps: list[int]) -> None:
    logger = RunFolderLogger(folder=tmp_path)
    fit(module(), 3, SystemMetrics(seconds=seconds), logger=logger)
    history = {name: values for name, values in logger.history().items() if name.startswith("system/")}
    assert set(history) == NAMES
    assert {tuple(values) for values in history.values()} == {tuple(steps)}
    for name in NAMES:
        if name.endswith("percentage"):
            assert all(0 <= value <= 100 for value in history[name].values()), name
    used = history["system/system_memory_usage_megabytes"][1]
    assert used == pytest.approx(psutil.virtual_memory().used / 1e6, rel=0.5)


def test_a_processor_is_no_accelerator() -> None:
    assert accelerator(torch.device("cpu")) == {}


def test_seconds_are_checked() -> None:
    with pytest.raises(ValueError, match=r"callbacks.system_metrics.seconds must not be negative, got -1.0"):
        SystemMetrics(seconds=-1.0)
