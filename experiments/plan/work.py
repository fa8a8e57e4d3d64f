"""Tokens and floating-point operations of a GRPO step, and the hours of the run, over all devices.

    rollout    reading every prompt once and every completion
    scoring    reading again: by the reference, and by the policy of all mini-batches but the first
    update     forward and backward, for each update

    hours = steps · operations / (devices · peak · mfu)

The formulas are those of ``policies.flops``, so ``mfu`` is what ``train/throughput/step_utilisation`` says of a run:
true tokens once, nothing for padding or for what checkpointing computes again. Validation and evaluation are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from contrastive_reasoning.policies.flops import DecoderSize, learning_flops, reading_flops
from experiments.plan.rollouts import Rollouts


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """Of one step, over all devices."""

    generated: int
    """Tokens of completions."""
    learned: int
    """The same tokens, as often as they pass forward and backward."""
    rollout: int
    """Floating-point operations."""
    scoring: int
    update: int

    @property
    def flops(self) -> int:
        return self.rollout + self.scoring + self.update


def step_work(
    size: DecoderSize, rollouts: Rollouts, *, updates: int, minibatches: int, reference: bool, full_kl: bool
) -> StepWork:
    """Where every rollout teaches; groups of equal rewards, which need no update, make it less."""
    work = rollouts.work()
    read = reading_flops(size, work)
    asked = (updates if full_kl else 1) if reference else 0
    return StepWork(
        generated=work.projected,
        learned=updates * work.projected,
        rollout=read,
        scoring=asked * read + read * (minibatches - 1) // minibatches,
        update=updates * learning_flops(size, work),
    )


def hours(flops: int, *, steps: int, devices: int, tflops: float, mfu: float) -> float:
    """Of a run of so many steps."""
    return steps * flops / (devices * tflops * 1e12 * mfu) / 3600
