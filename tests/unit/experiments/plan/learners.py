"""The learner of most tests of the plan."""

from __future__ import annotations

from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.learner import Learner


def whole_on_cpu(shape: ModelShape) -> Learner:
    """Returns a learner on a CPU with fp32 weights and computation, all weights trained."""
    return Learner(
        shape=shape,
        weight_bytes=4,
        compute_bytes=4,
        rank=None,
        targets=(),
        frozen=False,
        checkpointing=False,
        on_cpu=True,
        chunk=1024,
    )
