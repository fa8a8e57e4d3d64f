"""Steps that are skipped on every rank because a number is NaN or infinite on one of them, and how many may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from contrastive_reasoning.distributed import this_rank, total
from contrastive_reasoning.errors import EndsRun
from contrastive_reasoning.ranges import at_least


class NotFinite(ArithmeticError):
    """A quantity of this step is NaN or infinite on this rank or another; the optimizer did not step with it."""


class TooManySkipped(FloatingPointError):
    """One step more was skipped than allowed; the weights are as before that step.

    Args:
        reason: the error message.
        batch: the training batch of the step, as tensors and strings; None if the code that catches this has it.
    """

    def __init__(self, reason: str, *, batch: Mapping[str, object] | None = None) -> None:
        super().__init__(reason)
        self.batch = batch


class Diverged(EndsRun, FloatingPointError):
    """Ends a run in which too many steps were skipped; the message names the file with the last step's batch."""


class SkippedSteps:
    """Counts the steps that are skipped because a number is not finite; the count is the same on every rank.

    Args:
        most: how many steps a run may skip.
        of: what the steps train, for the error message; None: the stage's module.

    Raises ValueError for a negative number.
    """

    def __init__(self, most: int, *, of: str | None = None) -> None:
        at_least(0, max_skipped_steps=most)
        self.most = most
        self.of = of
        self.count = 0
        """Belongs in the owner's checkpoint."""

    def add(self, reason: str, batch: Mapping[str, object] | None = None) -> None:
        """Counts one more skipped step, for ``reason``, as returned by ``not_finite``.

        Raises TooManySkipped if more than ``most`` steps were skipped.
        """
        self.count += 1
        if self.count > self.most:
            steps = "steps" if self.of is None else f"steps of {self.of}"
            raise TooManySkipped(f"{reason}, and {self.most} {steps} were left out before: the run stops", batch=batch)


@contextmanager
def keeping_batch(batch: Callable[[], Mapping[str, object]], *, run: str | Path, step: int) -> Iterator[None]:
    """On ``TooManySkipped`` in its block, writes this rank's batch to the folder of ``run``, for ``torch.load``.

    Args:
        batch: returns what is written, unless the exception holds it. It has only tensors and strings, so that loading
            runs no code.
        run: the run folder.
        step: the number of the step, for the file name.

    Raises Diverged in place of ``TooManySkipped``, naming the file.
    """
    try:
        yield
    except TooManySkipped as reason:
        path = Path(run) / "skipped" / f"step={step:06d}.rank{this_rank()}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(dict(reason.batch or batch()), path)
        raise Diverged(
            f"{reason}; the batch of step {step} is in {path}, and the weights are as they were before the update that "
            "failed"
        ) from None


def not_finite(**quantities: Tensor | None) -> str | None:
    """A clause that names a quantity that is not finite here, or points to another rank; None if all are finite."""
    bad = [name for name, values in quantities.items() if values is not None and not bool(values.isfinite().all())]
    if not total(float(len(bad))):  # ranks communicate: each must call it, also one whose numbers are finite
        return None
    return f"{bad[0]} is not finite" if bad else "a number is not finite on another rank"


def require_finite(where: str = "", /, **quantities: Tensor | None) -> None:
    """Raises ``NotFinite`` on every rank if ``not_finite`` returns a reason, to which ``where`` is appended."""
    if reason := not_finite(**quantities):
        raise NotFinite(reason + where)


def finite_step(optimizer: torch.optim.Optimizer, **quantities: Tensor) -> str | None:
    """Steps if the gradients and ``quantities`` are finite on every rank; otherwise returns the reason.

    A skipped step leaves the weights and the optimizer's moments unchanged: one NaN would stay in both.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    reason = not_finite(**quantities, gradient=norm)
    if reason is None:
        optimizer.step()
    return reason
