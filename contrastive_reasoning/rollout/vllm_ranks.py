"""One server for all processes of a run: what changes it is done by the first, what came of it reaches all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import distributed

from contrastive_reasoning.rollout.vllm_http import ServerError

Outcome = TypeVar("Outcome")


def on_first_rank(work: Callable[[], Outcome]) -> Outcome:
    """The result of ``work`` in the first process, in every process; a server's error there is raised in every one."""
    if not distributed.is_available() or not distributed.is_initialized():
        return work()
    message: list[Any] = [None, None]
    if distributed.get_rank() == 0:
        try:
            message = [None, work()]
        except ServerError as error:
            message = [str(error), None]
    distributed.broadcast_object_list(message, src=0)
    if message[0] is not None:
        raise ServerError(message[0])
    return message[1]


def wait_for_all() -> None:
    """Return when every process has come here."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
