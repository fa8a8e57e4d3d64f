"""Steps of a part that learns beside the policy, left out because a number was not finite: counted, and limited."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from contrastive_reasoning.distributed.exchange import this_rank, total


class TooManyLeftOut(FloatingPointError):
    """One step more than a part may leave out; what it knew before is untouched.

    Args:
        reason: the sentence.
        batch: what the step was to be learned from, as ``dumped`` takes it; None where whoever catches this has it.
    """

    def __init__(self, reason: str, *, batch: Mapping[str, object] | None = None) -> None:
        super().__init__(reason)
        self.batch = batch


class LeftOut:
    """Counts, on every rank alike; a plain object whose count is in the checkpoint of who asks it.

    Args:
        part: whose steps these are, as it reads in a sentence.
        most: how many a run may leave out.

    Raises:
        ValueError: for a negative number.
    """

    def __init__(self, part: str, *, most: int) -> None:
        if most < 0:
            raise ValueError(f"max_skipped_steps of {part} must not be negative, got {most}")
        self.part = part
        self.most = most
        self.count = 0

    def add(self, what: str, batch: Mapping[str, object] | None = None) -> None:
        """Leave one more out; ``what`` says of which number, as ``bad_number`` does.

        Raises:
            TooManyLeftOut: where that is one too many.
        """
        self.count += 1
        if self.count > self.most:
            raise TooManyLeftOut(
                f"{what} is not finite in a step of {self.part}, and {self.count - 1} of its steps were left out "
                "before: the run stops",
                batch=batch,
            )


def bad_number(**quantities: Tensor) -> str:
    """Which of them is not finite on this rank; where none is, what else ``finite_step`` looks at."""
    found = [name for name, values in quantities.items() if not bool(values.isfinite().all())]
    return found[0] if found else "gradient, or a number on another rank,"


def dumped(batch: Mapping[str, object], *, run: str | Path, step: int) -> Path:
    """Where ``batch``, this rank's of ``step``, lies in the folder of ``run``: for ``torch.load``, ``weights_only``."""
    path = Path(run) / "skipped" / f"step={step:06d}.rank{this_rank()}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(dict(batch), path)
    return path


def finite_step(optimizer: torch.optim.Optimizer, *quantities: Tensor) -> bool:
    """Step with the gradients that are there, if they and ``quantities`` are finite on every rank; whether it did.

    Where it did not, weights are as they were, and so is what the optimizer remembers of gradients: a single one that
    is no number would stay in both for good.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    sound = all(bool(values.isfinite().all()) for values in (*quantities, norm))
    if total(float(not sound)):
        return False
    optimizer.step()
    return True
