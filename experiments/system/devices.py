"""Cores, memory and GPUs of this machine, and how cores and GPUs are divided among jobs that run at the same time.

8 GPUs, 3 jobs at once, trainer.devices=2      groups 0,1 · 2,3 · 4,5
2 GPUs, 3 jobs at once, trainer.devices=1      groups 0 · 1 · 0
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import Any

from experiments.system.files import lock

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that limit the threads of the libraries that torch uses."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1
"""Options of ``mallopt``, from glibc's malloc.h."""
GPU_GROUPS, SEPARATOR = "CONTRASTIVE_REASONING_GPU_GROUPS", ";"
"""The variable that holds the GPU groups of a sweep's jobs, and the separator between groups."""


def cores() -> int:
    """Number of cores that this process may use; under a batch system these may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_each(at_once: int) -> int:
    """Cores per job if ``at_once`` jobs share them; at least one."""
    return max(1, cores() // at_once)


def host_memory() -> float:
    """Total memory of this machine in GiB, used or free."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def keep_freed_memory() -> None:
    """Makes glibc keep memory that this process frees, for its next allocation; elsewhere nothing happens.

    By default large blocks go back to the system, and every page of the next ones is a page fault.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)  # a block of its own mapping would be returned when it is freed
        mallopt(M_TRIM_THRESHOLD, -1)  # read as the largest size


def device_type(accelerator: object) -> str:
    """Returns the type of device that Lightning chooses for a ``trainer.accelerator``, such as ``cpu`` or ``cuda``.

    ``gpu`` is ``cuda`` on a machine without a GPU.
    """
    if accelerator not in (None, "auto", "gpu"):
        return str(accelerator)
    import torch  # slow to import

    if torch.mps.is_available():
        return "mps"
    return "cuda" if accelerator == "gpu" or torch.cuda.is_available() else "cpu"


def unusable_device(accelerator: object) -> str | None:
    """Returns a sentence if the trainer's device is a GPU that torch does not find, or Apple's MPS; else None."""
    kind = device_type(accelerator)
    if kind == "mps":
        return (
            f"trainer.accelerator={accelerator}: the GPU of this machine is Apple's MPS, which has no float64, and "
            "runs need it; choose trainer.accelerator=cpu, or cuda on another machine"
        )
    if kind != "cuda":
        return None
    import torch  # slow to import

    if torch.cuda.is_available():
        return None
    return (
        f"trainer.accelerator={accelerator}: torch finds no GPU on this machine; scale=workstation or trainer=cpu "
        "takes its CPU"
    )


def gpu_groups(trainers: Sequence[Any], at_once: int) -> list[str]:
    """One value of ``CUDA_VISIBLE_DEVICES`` for each of ``at_once`` jobs, with as many GPUs as the largest job needs.

    Empty if GPUs are not divided: one job at a time, no job that uses a GPU, fewer GPUs than a job needs, or a job that
    names its devices or takes all of them. ``trainers``: the config node ``trainer`` of each job.
    """
    counts = [trainer.devices for trainer in trainers if trainer.accelerator in ("auto", "cuda", "gpu")]
    if at_once < 2 or not counts or not all(type(count) is int and count > 0 for count in counts):
        return []
    gpus, each = visible_gpus(), max(counts)
    groups = [",".join(gpus[first : first + each]) for first in range(0, len(gpus) - each + 1, each)]
    return list(islice(cycle(groups), at_once))


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use: those in ``CUDA_VISIBLE_DEVICES``, else all by number."""
    if (named := os.environ.get(VISIBLE)) is not None:  # like CUDA, read up to the first invalid name
        return list(takewhile(lambda name: name and not name.startswith("-"), map(str.strip, named.split(","))))
    import torch  # slow to import, and not needed for jobs on CPUs

    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def gpus_of_job(folder: Path) -> Iterator[dict[str, str]]:
    """Reserves the first free GPU group of the sweep in ``folder`` during the block; yields the job's variables.

    Yields an empty mapping if there are no groups or none is free.
    """
    for number, gpus in enumerate(filter(None, os.environ.get(GPU_GROUPS, "").split(SEPARATOR))):
        with lock(folder / f".gpus-{number}", wait=False) as free:
            if free:
                yield {VISIBLE: gpus}
                return
    yield {}
