"""Weights, gradients and optimizer of a learner on one device, in bytes, by the way they are spread.

unsharded     weights · w      gradients · g       moments · 2·g                    per parameter, w and g its bytes
ZeRO 1        as they are      as they are         (4 + 4 + 4) / devices            fp32 weights and both moments
ZeRO 2        as they are      g / devices, more   the same
ZeRO 3        w / devices      g / devices         the same; fp32 weights need no copy there

More: whole gradients of parameters that lie in two shares or more. Of adapters, which are small, g / devices is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from contrastive_reasoning.policies.sharding import most_in_a_share
from experiments.plan.learner import Learner
from experiments.plan.sharding import LIVE, Sharding

FLOAT = 4
MOMENTS = 2
"""Of AdamW."""


@dataclass(frozen=True, kw_only=True)
class States:
    """Bytes on one device."""

    weights: int
    gathered: int
    """Weights of the other devices that are whole here while a step passes through them."""
    all_gathered: int
    """The same while rollouts are drawn, for which stage 3 makes the policy whole once."""
    gradients: int
    optimizer: int
    exchange: int
    """Buffers in which gradients pass between the devices."""


def states(learner: Learner, sharding: Sharding) -> States:
    """What of a learner lies on one of the devices. Of one that is not trained only the weights."""
    trained, devices = learner.trained, sharding.devices
    whole = learner.weights_in_bytes
    spread = sharding.stage == 3 and trained > 0
    weights = 0 if spread and sharding.offload_parameters else whole // devices if spread else whole
    gradients = trained * learner.trained_bytes
    optimizer = trained * learner.trained_bytes * MOMENTS
    if sharding.deepspeed:
        copied = not (spread and learner.trained_bytes == FLOAT)
        optimizer = trained * FLOAT * (MOMENTS + copied) // devices
        gradients = _kept(learner, sharding) if sharding.stage >= 2 else gradients
    if sharding.offload_optimizer:
        optimizer = 0
        gradients = 0 if sharding.stage >= 2 else gradients
    missing = whole - weights if spread else 0
    return States(
        weights=weights,
        gathered=min(missing, LIVE * learner.weight_bytes),
        all_gathered=missing,
        gradients=gradients,
        optimizer=optimizer,
        exchange=_exchange(learner, sharding),
    )


def _kept(learner: Learner, sharding: Sharding) -> int:
    """Gradients of stage 2 or 3."""
    if sharding.stage == 3 or not learner.full:
        return learner.trained * learner.trained_bytes // sharding.devices
    sizes = [(count, count * learner.trained_bytes) for count in learner.shape.parameter_sizes()]
    return most_in_a_share(sizes, sharding.devices)


def _exchange(learner: Learner, sharding: Sharding) -> int:
    """DDP copies all gradients into buckets; DeepSpeed has two of a size, one filling while the other is sent."""
    if not sharding.exchanges or not learner.trained:
        return 0
    if sharding.deepspeed:
        return 2 * min(sharding.bucket_elements, learner.trained) * learner.trained_bytes
    return learner.trained * learner.trained_bytes
