"""What a run does about numbers that are not finite: it leaves the step out, and after too many of them it stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from contrastive_reasoning.distributed import dumped, total

SKIPPED = "train/health/skipped_steps"


class NotFinite(ArithmeticError):
    """A quantity of this step is nan or infinite, on this rank or on another; nothing was learned from it.

    Where the step is several updates, ``update`` says which one was left out, and all that would have come after it.
    """

    def __init__(self, reason: str, *, update: tuple[int, int] | None = None) -> None:
        super().__init__(reason)
        self.update = update
        """Its number, from 1, and how many there are; None where no update was begun."""

    @property
    def place(self) -> str:
        """``update 2 of 4 of`` …, or nothing where the step has no such parts."""
        return "" if self.update is None or self.update[1] == 1 else f"update {self.update[0]} of {self.update[1]} of "


def kept(loss: Tensor) -> Tensor:
    """``loss``, for backward; of one that is not finite no rank's gradient is. Nothing waits for the device."""
    return loss * torch.where(loss.detach().isfinite(), 1.0, float("nan")).to(loss.dtype)


def require_finite(update: tuple[int, int] | None = None, /, **quantities: Tensor | None) -> None:
    """Go on, on every rank, only if all numbers are finite on all of them; ``update`` as ``NotFinite`` says it.

    Raises:
        NotFinite: naming the first quantity of this rank that is not.
    """
    found = [name for name, values in quantities.items() if values is not None and not bool(values.isfinite().all())]
    if total(float(len(found))):
        reason = f"{found[0]} is not finite" if found else "a number is not finite on another rank"
        raise NotFinite(reason, update=update)


class SkippedSteps:
    """Counts the steps that were left out; a plain object whose count is in the checkpoint of who asks it.

    Args:
        most: how many a run may leave out.

    Raises:
        ValueError: for a negative number.
    """

    def __init__(self, most: int) -> None:
        if most < 0:
            raise ValueError(f"max_skipped_steps must not be negative, got {most}")
        self.most = most
        self.count = 0

    @property
    def metrics(self) -> dict[str, float]:
        return {SKIPPED: float(self.count)}

    def add(self, reason: NotFinite, batch: Callable[[], Mapping[str, object]], *, run: str | Path, step: int) -> None:
        """Leave the step after ``step`` out; ``batch()`` is what ``torch.load`` reads with ``weights_only``.

        Raises:
            FloatingPointError: where that is one too many; the batch is in the folder of ``run``.
        """
        self.count += 1
        if self.count > self.most:
            path = dumped(batch(), run=run, step=step + 1)
            part = "update" if reason.place else "step"
            raise FloatingPointError(
                f"{reason} in {reason.place}step {step + 1}, and {self.most} steps were left out before: the run "
                f"stops; its batch is in {path}, and the weights are as they were before that {part}"
            )
