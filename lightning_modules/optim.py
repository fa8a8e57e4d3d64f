"""Optimizers with their schedule, gradient accumulation over micro-batches, and skipped steps.

training_step ── backward ── gradients of all ranks ── finite? ─┬─ yes ── clip ── optimizer's step
                                                                └─ no ─── counted, weights as they were
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil, cos, pi
from typing import Any, Literal, get_args

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from contrastive_reasoning.distributed import ranks
from contrastive_reasoning.nonfinite import SkippedSteps, keeping_batch
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.progress import step_is_logged
from contrastive_reasoning.ranges import above, at_least, one_of
from contrastive_reasoning.rollout.sampling import derived_seed
from lightning_modules.zero import zero_of

Schedule = Literal["constant", "linear", "cosine"]
SKIPPED = "train/health/skipped_steps"


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW, arXiv:1711.05101, with its learning rate at every step: a linear warm-up, then the schedule.

    A call with parameters returns the optimizer. The rate is a function of the step alone, so no state is saved.
    """

    learning_rate: float
    betas: Sequence[float]
    epsilon: float
    weight_decay: float
    warmup_steps: int | float
    """A number below 1 is that share of ``total_steps``, rounded up."""
    schedule: Schedule
    """``constant``, or ``linear`` or ``cosine`` decay to 0 at ``total_steps``."""
    total_steps: int | None
    """Where the schedule ends; None only with ``constant``."""

    def __post_init__(self) -> None:
        one_of(get_args(Schedule), schedule=self.schedule)
        at_least(0, learning_rate=self.learning_rate)
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise ValueError(f"betas must be two numbers in [0, 1), got {list(self.betas)}")
        if not self.warmup_steps >= 0 or (self.warmup_steps >= 1 and self.warmup_steps % 1):
            raise ValueError(f"warmup_steps must be a share below 1 or a whole number, got {self.warmup_steps}")
        if 0 < self.warmup_steps < 1:
            if self.total_steps is None:
                raise ValueError(f"warmup_steps={self.warmup_steps} is a share of total_steps, which is null")
            # exact: as a float, 0.07 * 100 is above 7 and would be rounded up to 8
            object.__setattr__(self, "warmup_steps", ceil(Fraction(str(self.warmup_steps)) * self.total_steps))
        if self.schedule != "constant" and (self.total_steps is None or self.total_steps <= self.warmup_steps):
            raise ValueError(
                f"schedule={self.schedule} needs total_steps above warmup_steps ({self.warmup_steps}), "
                f"got {self.total_steps}"
            )

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        """The optimizer over the trained ones of ``parameters``, fused where torch can."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # on a CPU the fused kernel takes a quarter of the time of torch's loop over tensors
        fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in trained)
        return torch.optim.AdamW(
            trained,
            lr=self.learning_rate,
            betas=(self.betas[0], self.betas[1]),
            eps=self.epsilon,
            weight_decay=self.weight_decay,
            fused=fused or None,  # None, not False: torch then chooses its fastest other implementation
        )

    def scale(self, step: int) -> float:
        """The factor on the learning rate at a step numbered from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "constant" or self.total_steps is None:
            return 1.0
        progress = min((step - self.warmup_steps) / (self.total_steps - self.warmup_steps), 1.0)
        return 1.0 - progress if self.schedule == "linear" else (1 + cos(pi * progress)) / 2

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        """For manual optimization: sets the rate of the step numbered from 0, and returns it."""
        rate = self.learning_rate * self.scale(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        return rate


def check_not_half(policy: CausalLMPolicy) -> None:
    """Raises ValueError if a policy would be trained in float16: small gradients become 0, as losses are not scaled."""
    trained = {parameter.dtype for parameter in policy.parameters() if parameter.requires_grad}
    dtypes = {"compute_dtype": policy.compute_dtype == torch.float16, "weights_dtype": torch.float16 in trained}
    if half := [key for key, is_half in dtypes.items() if is_half]:
        raise ValueError(f"policy.{half[0]}=float16 loses small gradients in training: use bfloat16 or float32")


def nan_unless_finite(loss: Tensor) -> Tensor:
    """``loss`` for backward. If it is not finite, every gradient on every rank becomes NaN. No device sync."""
    return loss * torch.where(loss.detach().isfinite(), 1.0, float("nan")).to(loss.dtype)


def backward_all(module: LightningModule, losses: Sequence[Callable[[], Tensor]]) -> None:
    """Runs backward for each micro-batch's loss in turn; the gradients are then those of the sum of all losses.

    The losses are functions, so that only one micro-batch's graph exists at a time. They are also parts of a sum over
    ranks; strategies average gradients, hence the factor. Where each rank keeps whole gradients, these are exchanged
    once, in the last backward.
    """
    zero, strategy = zero_of(module), module.trainer.strategy
    ddp = strategy if isinstance(strategy, DDPStrategy) and zero is None else None
    for index, loss in enumerate(losses):
        with nullcontext() if ddp is None or index == len(losses) - 1 else ddp.block_backward_sync():
            if zero is not None and index:
                zero.begin_microbatch()
            module.manual_backward(nan_unless_finite(loss()) * ranks())


def clipped_step(
    module: LightningModule, optimizer: LightningOptimizer, parameters: Iterable[nn.Parameter], max_norm: float | None
) -> Tensor:
    """Clips, steps, clears the gradients; returns the norm before clipping. No step if it is not finite."""
    zero = zero_of(module)
    if zero is not None:  # it clips in the step, to the module's gradient_clip
        optimizer.step()
        return zero.gradient_norm()
    norm = clip_by_norm(parameters, max_norm)
    if norm.isfinite():
        optimizer.step()
    optimizer.zero_grad()
    return norm


def clip_by_norm(parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Scales gradients so that their joint norm is at most ``max_norm`` (None: no scaling); returns the norm before.

    Gradients with a norm that is not finite are removed, so that the optimizer's step changes nothing.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in trained if parameter.grad is not None])
    if not norm.isfinite():
        for parameter in trained:
            parameter.grad = None  # not 0, with which AdamW would still step by its moments and weight decay
    elif max_norm is not None:
        nn.utils.clip_grads_with_norm_(trained, max_norm, norm)
    return norm


class FiniteSteps(LightningModule):
    """A module under automatic optimization that skips steps with a loss or gradient that is not finite.

    Its training steps return ``nan_unless_finite(loss)``.

    Args:
        optimizer: of all trained parameters, with its schedule.
        seed: of dropout.
        gradient_clip: the maximum gradient norm; None: no clipping.
        max_skipped_steps: how many steps a run may skip.

    Raises:
        ValueError: if ``gradient_clip`` is not positive or ``max_skipped_steps`` is negative.
    """

    def __init__(self, *, optimizer: AdamW, seed: int, gradient_clip: float | None, max_skipped_steps: int) -> None:
        super().__init__()
        if gradient_clip is not None:
            above(0, gradient_clip=gradient_clip)
        self.optimizer = optimizer
        self.seed = seed
        self.gradient_clip = gradient_clip
        self.skipped = SkippedSteps(max_skipped_steps)
        self.gradient_norm: Tensor = torch.zeros(())
        """The norm over all ranks, before clipping, in the last step."""
        self._batch: Any = None

    def plain(self, batch: Any) -> Mapping[str, object]:
        """``batch`` as tensors and strings alone; it is written to disk if the run stops at it."""
        return asdict(batch)

    def dropout(self, purpose: str) -> AbstractContextManager[None]:
        """Context in which dropout depends only on the seed, the purpose, the step and the rank."""
        return seeded(derived_seed((self.seed, purpose, self.global_step, self.global_rank)))

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer(self.parameters())
        scheduler = LambdaLR(optimizer, self.optimizer.scale)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._batch = batch

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Clips between backward and the optimizer's step. ZeRO clips and computes the norm in that step itself."""
        if zero_of(self) is None:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.gradient_norm = clip_by_norm(parameters, self.gradient_clip)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Runs backward and step as Lightning does; then counts the step if it was skipped.

        Raises:
            FloatingPointError: if too many steps were skipped; the batch is written to the run folder.
        """
        super().optimizer_step(*args, **kwargs)
        zero = zero_of(self)
        if zero is not None:
            self.gradient_norm = zero.gradient_norm()
        if not bool(self.gradient_norm.isfinite()):
            run, step = self.trainer.default_root_dir, self.trainer.global_step + 1
            with keeping_batch(lambda: self.plain(self._batch), run=run, step=step):
                self.skipped.add("gradient is not finite")
        if step_is_logged(self.trainer):
            self.log(SKIPPED, float(self.skipped.count), batch_size=1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["steps_left_out"] = self.skipped.count

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped.count = checkpoint["steps_left_out"]
