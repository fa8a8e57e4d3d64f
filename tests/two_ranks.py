"""Real processes that train together over gloo, for tests that compare ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing

from tests.ports import free_port


def on_ranks(function: Callable[..., Any], folder: Path, *args: Any, count: int = 2) -> list[Any]:
    """Returns the result of ``function(*args)`` on each rank: tensors, numbers and containers of them."""
    port = free_port()
    multiprocessing.start_processes(
        _rank, args=(function, folder, args, count, port), nprocs=count, start_method="spawn"
    )
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(count)]


def _rank(rank: int, function: Callable[..., Any], folder: Path, args: Any, count: int, port: int) -> None:
    named = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in named.items()})
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # there may be more processes than GPUs
    torch.set_num_threads(1)
    from experiments.system.launch import process_group

    with process_group():
        torch.save(function(*args), folder / f"rank{rank}.pt")
