"""What a run does about numbers that are not finite: it leaves the step out, and after too many of them it stops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from contrastive_reasoning.ranks import this_rank, total

SKIPPED = "train/health/skipped_steps"


class NotFinite(ArithmeticError):
    """A quantity of this step is nan or infinite, on this rank or on another; nothing was learned from it."""


def require_finite(**quantities: Tensor | None) -> None:
    """Go on, on every rank, only if all numbers are finite on all of them.

    Raises:
        NotFinite: naming the first quantity of this rank that is not.
    """
    found = [name for name, values in quantities.items() if values is not None and not bool(values.isfinite().all())]
    if total(float(len(found))):
        raise NotFinite(f"{found[0]} is not finite" if found else "a number is not finite on another rank")


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

    def add(self, reason: NotFinite, batch: Mapping[str, object], *, folder: Path, step: int) -> None:
        """Leave the step after ``step`` out; ``batch`` holds what ``torch.load`` reads with ``weights_only``.

        Raises:
            FloatingPointError: where that is one too many; the batch is in ``folder``.
        """
        self.count += 1
        if self.count > self.most:
            path = folder / f"step={step + 1:06d}.rank{this_rank()}.pt"
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(dict(batch), path)
            raise FloatingPointError(
                f"{reason} in step {step + 1}, and {self.most} steps were left out before: the run stops; its batch "
                f"is in {path}, and the weights are as they were before it"
            )
