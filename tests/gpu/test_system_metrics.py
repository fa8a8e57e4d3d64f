"""``accelerator`` metrics are of the whole device, including the tensors of this process."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from callbacks.system_metrics import accelerator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_accelerator_memory_includes_tensors_of_this_process() -> None:
    device = torch.device("cuda", 0)
    before = accelerator(device)["gpu_0_memory_usage_megabytes"]
    tensor = torch.ones(50_000_000, device=device)
    values = accelerator(device)
    assert values["gpu_0_memory_usage_megabytes"] >= before + 0.99 * tensor.nbytes / 1e6
    assert 0 < values["gpu_0_memory_usage_percentage"] <= 100
    assert ("gpu_0_utilization_percentage" in values) == (find_spec("pynvml") is not None)
