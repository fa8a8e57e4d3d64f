"""The learner that most tests of the plan look at."""

from __future__ import annotations

from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.learner import Learner


def whole_on_cpu(shape: ModelShape) -> Learner:
    """All of it is trained, weights and passes in fp32, on a CPU."""
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
