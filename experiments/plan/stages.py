"""The moments of every stage of an experiment, from its composed configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.policies.shape import find_shape
from experiments.plan.cache import Seating, seating
from experiments.plan.companions import Companions, companions, uses_server
from experiments.plan.learner import Learner, learner_of, size_of
from experiments.plan.moments import Moment, grpo_moments, rollout_moment, update_moments
from experiments.plan.options import Options
from experiments.plan.rollouts import Rollouts, fullest_microbatch, rollouts_of
from experiments.plan.sharding import Sharding, by_name


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What of an experiment its cost is a function of."""

    config: Any
    learner: Learner
    source: str
    """Where the shape of the policy comes from."""
    rollouts: Rollouts
    seats: Seating
    others: Companions

    def moments(self, sharding: Sharding) -> list[Moment]:
        """Of all its stages."""
        found: list[Moment] = []
        for stage in self.config.stages:
            found += MOMENTS[stage](self, sharding)
        return found

    def problems_on_one(self, devices: int) -> int:
        """Problems of a step on one device: the batch is the budget's, whatever the number of devices."""
        return -(-self.rollouts.problems // devices)


def experiment_of(config: Any, options: Options, *, on_cpu: bool, devices: int) -> Experiment:
    """Read the configuration.

    Raises:
        ValueError: where the shape of a model is not known, or a dtype is none.
    """
    learner, source = learner_of(config.policy, on_cpu=on_cpu)
    rollouts = rollouts_of(config, learner.shape, options)
    seats = _seats(config.rollout.engine, rollouts, problems=-(-rollouts.problems // devices))
    return Experiment(
        config=config,
        learner=learner,
        source=source,
        rollouts=rollouts,
        seats=seats,
        others=companions(config, learner, seats),
    )


def _seats(engine: Any, rollouts: Rollouts, *, problems: int, group_size: int | None = None) -> Seating:
    return seating(
        prompts=problems,
        group_size=group_size or rollouts.group_size,
        prompt_tokens=rollouts.prompt_tokens,
        completion_tokens=rollouts.completion_tokens,
        budget=engine.max_batch_tokens,
    )


def _warm_start(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """A whole batch passes at once; a pretrained policy is taken as it is."""
    if plan.config.policy.pretrained is not None or plan.config.warm_start.module is None:
        return []
    rows = -(-plan.config.budget.warm_start.batch_size // sharding.devices)
    lengths = Lengths(
        prompts=[plan.rollouts.prompt_tokens] * rows,
        completions=[plan.rollouts.completion_tokens] * rows,
        owner=list(range(rows)),
    )
    return update_moments("warm_start", plan.learner, lengths, sharding, {})


def _critic(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """A text critic reads a batch of steps and a batch of goals; other critics are small and not counted."""
    encoder = plan.config.critic.get("encoder")
    if encoder is None:
        return []
    shape, size = find_shape(encoder.pretrained).shape, size_of("critic.encoder.dtype", encoder.dtype)
    training = encoder.training
    frozen = str(training._target_).endswith("Frozen")
    rank = training.get("rank")
    learner = Learner(
        shape=shape,
        weight_bytes=size,
        compute_bytes=size,
        rank=rank,
        targets=() if rank is None else shape.adapted(training.target_modules),
        frozen=frozen,
        checkpointing=False,
        on_cpu=plan.learner.on_cpu,
        chunk=plan.learner.chunk,
    )
    rows, length = 2 * -(-plan.config.budget.critic.batch_size // sharding.devices), plan.config.critic.max_length
    lengths = Lengths(prompts=[1] * rows, completions=[length - 1] * rows, owner=list(range(rows)))
    return [m for m in update_moments("critic", learner, lengths, sharding, {}) if m.name == "backward"]


def _grpo(plan: Experiment, sharding: Sharding) -> list[Moment]:
    lengths = fullest_microbatch(plan.rollouts, plan.learner.shape, problems=plan.problems_on_one(sharding.devices))
    seats = None if uses_server(plan.config) else plan.seats
    return grpo_moments(plan.learner, lengths, seats, sharding, plan.others)


def _evaluate(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """The policy alone, with as many greedy rows as the engine seats; completions as long as in training."""
    engine = plan.config.suite.engine
    if str(engine._target_).endswith("VLLMEngine"):
        return []
    problems = plan.config.budget.evaluate.problems
    seats = _seats(engine, plan.rollouts, problems=problems, group_size=1)
    alone = by_name("gpu", 1)
    moment = rollout_moment("evaluate", plan.learner, seats, alone, {})
    return [Moment(stage="evaluate", name="rollout", parts={**moment.parts, "optimizer": 0})]


MOMENTS: dict[str, Callable[[Experiment, Sharding], list[Moment]]] = {
    "warm_start": _warm_start,
    "critic": _critic,
    "grpo": _grpo,
    "evaluate": _evaluate,
}


def uncounted(plan: Experiment) -> Iterator[str]:
    """What of this experiment the figures leave out or assume, in sentences."""
    config = plan.config
    if plan.rollouts.assumed:
        yield f"prompts of {plan.rollouts.prompt_tokens} tokens are an assumption: prompt_tokens=NUMBER says better"
    if ("critic" in config.stages or plan.others.critic) and config.critic.get("encoder") is None:
        yield "the critic is a small network and not counted"
    if plan.others.server:
        yield "the vLLM server: the least it can do with; it takes what --gpu-memory-utilization gives it"
    if plan.others.full_kl:
        yield "the logits of the KL over the whole vocabulary are not counted"
    if config.policy.get("kernels") == "liger":
        yield "log-probs are counted as torch computes them; liger's kernel needs less"
    if config.policy.get("compiled"):
        yield "activations are counted as without compilation, which keeps less"
