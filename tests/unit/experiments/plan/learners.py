"""The learner and rollouts of most tests of the plan."""

from __future__ import annotations

from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.memory import Learner
from experiments.plan.stages import Rollouts


def whole_on_cpu(shape: ModelShape) -> Learner:
    """Returns a learner on a CPU with fp32 weights and computation, all weights trained."""
    return Learner(
        shape=shape,
        weight_bytes=4,
        compute_bytes=4,
        adapters=0,
        frozen=False,
        checkpointing=False,
        on_cpu=True,
        fused=True,
    )


def rollouts_of(problems: int, group_size: int, prompt: int, completion: int, *, microbatch: int = 10_000) -> Rollouts:
    return Rollouts(
        problems=problems,
        group_size=group_size,
        prompt_tokens=prompt,
        completion_tokens=completion,
        mean_tokens=completion,
        microbatch_tokens=microbatch,
        assumed=False,
    )
