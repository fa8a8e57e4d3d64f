"""Small ragged batches in float64, and the gradient of an objective by autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.objectives import Objective, ObjectiveInputs

LENGTHS = torch.tensor([5, 1, 3, 0, 4])


def _ragged(seed: int, *, spread: float, per_token: bool) -> ObjectiveInputs:
    """Five rollouts, one of them empty; ratios around 1, further away for a larger ``spread``."""
    generator = torch.Generator().manual_seed(seed)
    old, noise, ref, advantages = torch.randn(4, 5, 5, generator=generator, dtype=torch.float64)
    return ObjectiveInputs(
        log_probs=(old + spread * noise).requires_grad_(),
        old_log_probs=old,
        ref_log_probs=ref,
        advantages=advantages if per_token else advantages[:, :1].expand(5, 5),
        mask=torch.arange(5) < LENGTHS[:, None],
    )


def _rows(log_ratios: list[list[float]], advantages: list[list[float]]) -> ObjectiveInputs:
    """Full rows with these log-ratios."""
    moved = torch.tensor(log_ratios, dtype=torch.float64)
    return ObjectiveInputs(
        log_probs=(moved - 1).requires_grad_(),
        old_log_probs=torch.full_like(moved, -1.0),
        ref_log_probs=None,
        advantages=torch.tensor(advantages, dtype=torch.float64),
        mask=torch.ones_like(moved, dtype=torch.bool),
    )


def _gradient(objective: Objective, given: ObjectiveInputs) -> Tensor:
    return torch.autograd.grad(objective(given).loss, given.log_probs)[0]


@pytest.fixture(scope="session")
def rows() -> Callable[..., ObjectiveInputs]:
    return _rows


@pytest.fixture(scope="session")
def gradient() -> Callable[..., Tensor]:
    return _gradient


@pytest.fixture(scope="session")
def ragged() -> Callable[..., ObjectiveInputs]:
    return _ragged
