"""How many floating-point operations a second a device can do, by trying: large matrix products and nothing else."""

from __future__ import annotations

from time import perf_counter

import torch

SIDES = {"cpu": 1024, "cuda": 8192}
REPEATS = 5


def measured_peak(device: torch.device, dtype: torch.dtype) -> float:
    """The best of a few square matrix products, in operations per second. Draws no random numbers.

    A fraction of a second. What a data sheet promises is more, what a model reaches is less.
    """
    side = SIDES.get(device.type, 2048)
    matrix = torch.full((side, side), 0.5, device=device, dtype=dtype)
    with torch.no_grad():
        seconds = [_seconds(matrix) for _ in range(1 + REPEATS)]
    return 2 * side**3 / min(seconds[1:])


def _seconds(matrix: torch.Tensor) -> float:
    _wait(matrix.device)
    start = perf_counter()
    torch.mm(matrix, matrix)
    _wait(matrix.device)
    return perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
