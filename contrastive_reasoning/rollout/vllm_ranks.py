"""One server for all processes of a run: what changes it is done by the first, what came of it reaches all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from contrastive_reasoning.distributed import from_first, gather, this_rank
from contrastive_reasoning.rollout.vllm_http import ServerError

Outcome = TypeVar("Outcome")


def on_first_rank(work: Callable[[], Outcome]) -> Outcome:
    """The result of ``work`` in the first process, in every process; a server's error there is raised in every one."""
    outcome: Outcome | None = None
    error: str | None = None
    if this_rank() == 0:
        try:
            outcome = work()
        except ServerError as refused:
            error = str(refused)
    outcome, error = from_first((outcome, error))
    if error is not None:
        raise ServerError(error)
    return outcome  # pyright: ignore[reportReturnType]


def on_every_rank(work: Callable[[], Outcome]) -> Outcome:
    """The result of ``work`` in each process, once all have theirs; a server's error in one is raised in every one."""
    outcome: Outcome | None = None
    error: str | None = None
    try:
        outcome = work()
    except ServerError as refused:
        error = str(refused)
    if (first := next((said for said in gather(error) if said is not None), None)) is not None:
        raise ServerError(first)
    return outcome  # pyright: ignore[reportReturnType]
