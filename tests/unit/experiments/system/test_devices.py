"""Assignment of GPUs to jobs by the device names in CUDA_VISIBLE_DEVICES; no device is needed."""

from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from experiments.system.devices import (
    GPU_GROUPS,
    SEPARATOR,
    VISIBLE,
    device_type,
    gpu_groups,
    gpus_of_job,
    unusable_device,
    visible_gpus,
)


def trainer(accelerator: str = "gpu", devices: object = 1) -> object:
    return OmegaConf.create({"accelerator": accelerator, "devices": devices})


@pytest.mark.parametrize(
    ("visible", "devices", "at_once", "expected"),
    [
        ("0,1,2,3,4,5,6,7", [2], 3, ["0,1", "2,3", "4,5"]),
        ("0,1", [1], 3, ["0", "1", "0"]),
        ("5, 3,GPU-1a", [1], 2, ["5", "3"]),
        ("0,1,2", [2], 2, ["0,1", "0,1"]),
        ("0,1,2,3", [1, 2], 2, ["0,1", "2,3"]),
        ("0,1,-1,2", [1], 3, ["0", "1", "0"]),
        ("0", [2], 2, []),
        ("", [1], 2, []),
        ("0,1", [1], 1, []),
        ("0,1", [-1], 2, []),
        ("0,1", ["auto"], 2, []),
        ("0,1", [[0, 1]], 2, []),
    ],
)
def test_gpu_groups_divides_visible_gpus(
    visible: str, devices: list[object], at_once: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, visible)
    assert gpu_groups([trainer(devices=each) for each in devices], at_once) == expected


def test_gpu_groups_ignores_jobs_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "0,1,2,3")
    assert gpu_groups([trainer("cpu"), trainer("cpu", devices=2)], 2) == []
    assert gpu_groups([trainer("cpu", devices=4), trainer("auto")], 2) == ["0", "1"], "of those that use one"
    assert gpu_groups([], 2) == []


def test_running_jobs_have_different_gpu_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU_GROUPS, SEPARATOR.join(["0,1", "2,3"]))
    with ExitStack() as running:
        first = ExitStack()
        assert first.enter_context(gpus_of_job(tmp_path)) == {VISIBLE: "0,1"}
        assert running.enter_context(gpus_of_job(tmp_path)) == {VISIBLE: "2,3"}
        assert running.enter_context(gpus_of_job(tmp_path)) == {}, "more than were foreseen"
        first.close()
        assert running.enter_context(gpus_of_job(tmp_path)) == {VISIBLE: "0,1"}, "free again"
    monkeypatch.setenv(GPU_GROUPS, "")
    with gpus_of_job(tmp_path) as variables:
        assert variables == {}


def test_visible_gpus_defaults_to_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert visible_gpus() == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("accelerator", "cuda", "mps", "expected", "usable"),
    [
        ("gpu", False, False, "cuda", False),
        ("gpu", False, True, "mps", False),
        ("gpu", True, False, "cuda", True),
        ("cuda", False, True, "cuda", False),
        ("cuda", True, False, "cuda", True),
        ("mps", False, True, "mps", False),
        ("auto", False, True, "mps", False),
        ("auto", True, False, "cuda", True),
        ("auto", False, False, "cpu", True),
        ("cpu", True, True, "cpu", True),
    ],
)
def test_device_of_trainer_is_lightnings_choice_and_refused_if_missing_or_mps(
    accelerator: str, cuda: bool, mps: bool, expected: str, usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.mps, "is_available", lambda: mps)
    assert device_type(accelerator) == expected
    sentence = unusable_device(accelerator)
    assert (sentence is None) is usable
    assert sentence is None or f"trainer.accelerator={accelerator}" in sentence
    assert expected != "mps" or all(choice in (sentence or "") for choice in ("cpu", "cuda"))


ALLOCATES = """
import resource, sys
if sys.argv[1] == "kept":
    from experiments.system.devices import keep_freed_memory
    keep_freed_memory()
faults = []
for _ in range(3):
    block = bytearray(64 * 2**20)
    del block
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[2] - faults[0])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    kept, returned = (
        int(subprocess.run([sys.executable, "-c", ALLOCATES, how], capture_output=True, check=True).stdout)
        for how in ("kept", "returned")
    )
    assert kept < 1000 < 10_000 < returned
