"""Calls of a function of one's own, in processes that may come to any harm."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from contrastive_reasoning.rewards.failures import RewardFailed
from contrastive_reasoning.rewards.worker import Reply, worker_command
from contrastive_reasoning.rewards.worker_pool import WorkerPool, WorkerRefused
from contrastive_reasoning.tasks.function_worker import FATAL, greeting, packed


class FunctionPool:
    """The replies to many calls, in their order. Processes start when first needed and are used again.

    Args:
        function: is imported by its name in every process, so it is no lambda and stands in no other function; what it
            prints goes nowhere.
        key: of the configuration, where the function is named.
        takes: the arguments that it must take, one after another; None: it is asked what it takes.
        module: the worker's, under ``contrastive_reasoning.tasks``: what a call is and what is said of it.
        workers: processes at most.
        limit_s: seconds of wall clock for one call.
        memory_mib: mebibytes that calls may take beyond what loading the function took, where the platform can tell.

    Raises:
        ValueError: for a number out of range, a function that no other process can import, or one that does not take
            these arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        key: str,
        takes: Sequence[str] | None,
        module: str,
        workers: int,
        limit_s: float,
        memory_mib: int,
    ) -> None:
        if memory_mib < 1:
            raise ValueError(f"memory_mib must be at least 1, got {memory_mib}")
        self.key = key
        self.pool = WorkerPool(
            command=worker_command(module, memory_mib * 2**20),
            greeting=_greeting(function, takes),
            workers=workers,
            limit_s=limit_s,
            spent=spent,
        )

    def __call__(self, calls: Sequence[Any]) -> list[Reply]:
        """The reply to each call, which is anything that can be pickled.

        Raises:
            RewardFailed: if the function cannot be imported in a process of its own.
        """
        try:
            return self.pool([packed(call) for call in calls])
        except WorkerRefused as error:
            raise RewardFailed(f"{self.key} does not load in a process of its own: {error}") from error

    def close(self) -> None:
        """End all processes. A later call starts new ones."""
        self.pool.close()


def spent(reply: Reply) -> bool:
    """Whether the process that says this is not asked again."""
    return reply.status == FATAL


def _greeting(function: Callable[..., Any], takes: Sequence[str] | None) -> bytes:
    if takes is not None:
        try:
            inspect.signature(function).bind(*takes)
        except TypeError as error:
            raise ValueError(f"function must take ({', '.join(takes)}), {function!r} does not: {error}") from error
    try:
        return greeting(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"function must be importable by its name in another process, {function!r} is not: {error}"
        ) from error
