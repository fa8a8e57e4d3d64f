"""The step of an optimizer that no strategy looks after: every rank takes it, or none does."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contrastive_reasoning.distributed.exchange import total


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
