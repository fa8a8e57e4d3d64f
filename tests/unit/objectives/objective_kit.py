"""Full rows with given log-ratios in float64, and the gradient of an objective by autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from contrastive_reasoning.objectives import Objective, ObjectiveInputs


def rows(log_ratios: list[list[float]], advantages: list[list[float]]) -> ObjectiveInputs:
    """Full rows with these log-ratios."""
    moved = torch.tensor(log_ratios, dtype=torch.float64)
    return ObjectiveInputs(
        log_probs=(moved - 1).requires_grad_(),
        old_log_probs=torch.full_like(moved, -1.0),
        ref_log_probs=None,
        advantages=torch.tensor(advantages, dtype=torch.float64),
        mask=torch.ones_like(moved, dtype=torch.bool),
    )


def gradient(objective: Objective, given: ObjectiveInputs) -> Tensor:
    return torch.autograd.grad(objective(given).loss, given.log_probs)[0]
