"""Optimizers with their schedule, and the one place that knows how gradients of micro-batches add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import cos, pi
from typing import Literal, get_args

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from contrastive_reasoning.distributed import ranks
from lightning_modules.zero import zero_of

Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW, arXiv:1711.05101, and its learning rate at every step: a linear warm-up, then the schedule.

    Called with parameters it gives the optimizer. The rate is a function of the step alone, so nothing of it is saved.
    """

    learning_rate: float
    betas: Sequence[float]
    epsilon: float
    weight_decay: float
    warmup_steps: int
    schedule: Schedule
    """``constant``; ``linear`` or ``cosine``: falling to 0 at ``total_steps``."""
    total_steps: int | None
    """Where the schedule ends; only ``constant`` does without."""

    def __post_init__(self) -> None:
        if self.schedule not in get_args(Schedule):
            raise ValueError(f"schedule must be one of {', '.join(get_args(Schedule))}, got {self.schedule!r}")
        if self.learning_rate < 0:
            raise ValueError(f"learning_rate must not be negative, got {self.learning_rate}")
        if self.schedule != "constant" and (self.total_steps is None or self.total_steps <= self.warmup_steps):
            raise ValueError(
                f"schedule={self.schedule} needs total_steps above warmup_steps ({self.warmup_steps}), "
                f"got {self.total_steps}"
            )

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        """The optimizer over those of ``parameters`` that are trained, fused where torch can."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        return torch.optim.AdamW(
            trained,
            lr=self.learning_rate,
            betas=(self.betas[0], self.betas[1]),
            eps=self.epsilon,
            weight_decay=self.weight_decay,
            fused=can_fuse(trained) or None,  # None, not False: torch then takes what else is fast
        )

    def scale(self, step: int) -> float:
        """The learning rate's factor in the step numbered from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "constant" or self.total_steps is None:
            return 1.0
        progress = min((step - self.warmup_steps) / (self.total_steps - self.warmup_steps), 1.0)
        return 1.0 - progress if self.schedule == "linear" else (1 + cos(pi * progress)) / 2

    def scheduler(self, optimizer: torch.optim.Optimizer) -> LambdaLR:
        """The same schedule for automatic optimization, stepped once per optimizer step."""
        return LambdaLR(optimizer, self.scale)

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        """The same schedule for manual optimization: set the rate of the step numbered from 0, and return it."""
        rate = self.learning_rate * self.scale(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        return rate


def can_fuse(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether one kernel can step all of them: on CPU it takes a quarter of the time of torch's loop over tensors."""
    return all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)


def nan_unless_finite(loss: Tensor) -> Tensor:
    """``loss`` for backward; of one that is not finite, every gradient on every rank is NaN. No device sync."""
    return loss * torch.where(loss.detach().isfinite(), 1.0, float("nan")).to(loss.dtype)


def backward_all(module: LightningModule, losses: Sequence[Callable[[], Tensor]]) -> None:
    """Backward of each micro-batch's loss in turn; afterwards the gradients are those of the sum of all losses.

    The losses are functions, so that only one micro-batch's graph lives at a time. They are parts of a sum over ranks
    too, while strategies take the mean of gradients. Where each rank keeps whole gradients they are exchanged once, in
    the backward of the last.
    """
    zero = zero_of(module)
    for index, loss in enumerate(losses):
        with nullcontext() if index == len(losses) - 1 else _without_exchange(module):
            if zero is not None and index:
                zero.begin_microbatch()
            module.manual_backward(nan_unless_finite(loss()) * ranks())


def _without_exchange(module: LightningModule) -> AbstractContextManager[None]:
    """Within it a backward leaves gradients in their own process."""
    strategy = module.trainer.strategy
    if isinstance(strategy, DDPStrategy) and zero_of(module) is None:
        return strategy.block_backward_sync()
    return nullcontext()


def clipped_step(
    module: LightningModule, optimizer: LightningOptimizer, parameters: Iterable[nn.Parameter], max_norm: float | None
) -> Tensor:
    """Clip, step, forget the gradients; the norm before clipping. Where that is not finite no step is taken."""
    zero = zero_of(module)
    if zero is not None:
        return zero.clipped_step(optimizer)
    norm = clip_by_norm(parameters, max_norm)
    if norm.isfinite():
        optimizer.step()
    optimizer.zero_grad()
    return norm


def clip_by_norm(parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Scale gradients so that their joint norm is at most ``max_norm`` (None: leave them); return the norm before.

    Gradients whose norm is not finite are removed: an optimizer's step then changes nothing.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in trained if parameter.grad is not None])
    if not norm.isfinite():
        for parameter in trained:
            parameter.grad = None
    elif max_norm is not None:
        nn.utils.clip_grads_with_norm_(trained, max_norm, norm)
    return norm
