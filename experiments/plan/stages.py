"""The moments of every stage at which memory can be fullest, each with its parts in bytes on one device.

    start      the policy whole, before it is cut into shards: validation; keys and values, logits
    copying    the policy, its optimizer, the copy that rollouts are drawn from, the parameter that is copied
    rollout    the policy, its optimizer, keys and values, logits
    scoring    the policy, its optimizer, the reference's pass
    forward    gradients of earlier micro-batches, what is kept so far, copies of weights
    loss       the same, all that is kept, and the chunks of logits
    backward   the same, all that is kept, and one layer's own work

What lies on the device all the time (weights, optimizer, a reference that stays) is in every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.policies.shape import find_shape
from experiments.config.composition import critic_checkpoints, teaches
from experiments.plan.activations import activations, loss_workspace, reading, scoring_workspace
from experiments.plan.learner import (
    Learner,
    Sharding,
    by_name,
    encoder_learner,
    learner_of,
    sharded_layers,
    size_of,
    states,
)
from experiments.plan.rollouts import (
    Rollouts,
    Rows,
    cache_blocks,
    cache_bytes,
    decoder_copies,
    drawing_bytes,
    even_lengths,
    first_rows,
    fullest_microbatch,
    policy_copy,
    rollouts_of,
)

CONTEXT = int(0.8 * 2**30)
"""Of a GPU, before any tensor: the CUDA context and the libraries' workspaces, 0.5 to 1 GiB on recent cards."""
SLACK = 0.05
"""Share of tensors that the caching allocator holds and cannot use: blocks of other sizes than those asked for."""
TRAINED = 4 * (1 + 1 + 2)
"""Bytes of a parameter in fp32 with its gradient and AdamW's moments."""

Parts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One moment of a stage; parts of 0 bytes are not shown."""

    stage: str
    name: str
    parts: Parts

    @property
    def tensors(self) -> int:
        return sum(self.parts.values())

    def total(self, *, on_cpu: bool) -> int:
        """Tensors and what a GPU takes besides."""
        return self.tensors if on_cpu else int(self.tensors * (1 + SLACK)) + CONTEXT


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What the cost of an experiment is a function of."""

    config: Any
    learner: Learner
    source: str
    """Where the shape of the policy comes from."""
    rollouts: Rollouts
    rows: Rows
    reference: Learner | None
    full_kl: bool
    """Whether the reference computes in every update too."""
    critic: int
    """Bytes of a text critic beside the policy; other critics are some MiB, and count as nothing."""
    server: int
    """The least bytes of a vLLM server on the same card; 0: there is none.

    Weights in the compute dtype, and keys and values of the rows that are requested at a time. A server takes what
    ``--gpu-memory-utilization`` gives it, and uses the rest for more rows.
    """

    def moments(self, sharding: Sharding) -> list[Moment]:
        return [moment for stage in self.config.stages for moment in MOMENTS[stage](self, sharding)]


def experiment_of(
    config: Any, *, on_cpu: bool, devices: int, prompt_tokens: int | None, completion_tokens: int | None
) -> Experiment:
    """Read the configuration.

    Raises:
        ValueError: where the shape of a model is not known, or a dtype is none.
    """
    learner, source = learner_of(config.policy, on_cpu=on_cpu)
    lengths = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    rollouts = rollouts_of(config, learner.shape, **lengths)
    rows = first_rows(config.rollout.engine, rollouts, prompts=-(-rollouts.problems // devices))
    kl = config.objective.get("kl")
    compared = config.module.reference is not None and kl is not None and config.objective.get("kl_weight", 0.0) > 0
    critic, encoder = 0, config.critic.get("encoder")
    if encoder is not None and any(True for _ in critic_checkpoints(config.reward)):
        shape = find_shape(encoder.pretrained).shape
        backbone = shape.parameters - (0 if shape.tie_word_embeddings else shape.vocabulary_matrix)
        critic = backbone * size_of("critic.encoder.dtype", encoder.dtype)
    server = learner.shape.parameters * learner.compute_bytes + sum(cache_blocks(learner, rows))
    return Experiment(
        config=config,
        learner=learner,
        source=source,
        rollouts=rollouts,
        rows=rows,
        reference=replace(learner, frozen=True) if compared else None,
        full_kl=compared and str((kl or {}).get("_target_")).endswith(".FullKL"),
        critic=critic,
        server=server if _uses_server(config.rollout.engine) else 0,
    )


def _uses_server(engine: Any) -> bool:
    return str(engine._target_).endswith("VLLMEngine")


def update_moments(stage: str, learner: Learner, lengths: Lengths, sharding: Sharding, beside: Parts) -> list[Moment]:
    """Of learning from a micro-batch, when an earlier one has left its gradients."""
    own, kept = states(learner, sharding), activations(learner, lengths)
    parts = ("weights", "optimizer", "gradients", "gathered", "exchange")
    standing = {part: getattr(own, part) for part in parts} | dict(beside) | {"activations": kept.kept}
    at_its_most = {
        "forward": {"passing": kept.forward},
        "loss": {"loss": loss_workspace(learner, sum(lengths.completions))},
        "backward": {"passing": kept.backward},
    }
    return [Moment(stage=stage, name=name, parts={**standing, **more}) for name, more in at_its_most.items()]


def _rollout_parts(learner: Learner, rows: Rows, sharding: Sharding, *, copied: bool) -> Parts:
    """Of drawing completions, the policy's own weights and optimizer left out."""
    return {
        "gathered": 0 if copied else states(learner, sharding).all_gathered,
        "cache": cache_bytes(learner, rows),
        "logits": drawing_bytes(learner, rows),
        "weight copies": policy_copy(learner) if copied else decoder_copies(learner),
    }


def _warm_start(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """A whole batch passes at once; a policy that is taken as it is costs nothing."""
    if not teaches(plan.config) or plan.config.warm_start.module is None:
        return []
    rows, rollouts = -(-plan.config.budget.warm_start.batch_size // sharding.devices), plan.rollouts
    lengths = even_lengths(rows, 1, prompt=rollouts.prompt_tokens, completion=rollouts.completion_tokens)
    return update_moments("warm_start", plan.learner, lengths, sharding, {})


def _critic(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """A text critic reads a batch of steps and a batch of goals; other critics are small and not counted."""
    encoder = plan.config.critic.get("encoder")
    if encoder is None:
        return []
    rows = 2 * -(-plan.config.datamodule.batch_size // sharding.devices)
    lengths = even_lengths(rows, 1, prompt=1, completion=plan.config.critic.max_length - 1)
    return update_moments("critic", encoder_learner(encoder, plan.learner), lengths, sharding, {})[-1:]


def _grpo(plan: Experiment, sharding: Sharding) -> list[Moment]:
    learner, reference, server, config = plan.learner, plan.reference, plan.server, plan.config
    problems = -(-plan.rollouts.problems // sharding.devices)  # the batch is the budget's, over any number of devices
    lengths = fullest_microbatch(plan.rollouts, learner.shape, problems=problems)
    own = states(learner, sharding)
    standing = {"weights": own.weights, "optimizer": own.optimizer, "exchange": own.exchange}
    held, fetched = 0, 0
    if reference is not None:
        held, fetched = sharded_layers(reference, sharding.devices if config.module.shard_reference else 1)
    beside = {
        "reference": 0 if config.module.offload_reference else held,
        "critic": plan.critic,
        "head": _head_bytes(config.reward, learner.shape.hidden_size),
        "server": 0 if server and config.rollout.engine.sleep_level is not None else server,
    }
    copied = sharding.stage == 3 and config.rollout.copy_weights
    drawing = {"server": server} if server else _rollout_parts(learner, plan.rows, sharding, copied=copied)
    moments = [Moment(stage="grpo", name="rollout", parts={**standing, **beside, **drawing})]
    if sharding.stage == 3 and not server:
        alone = by_name("gpu", 1)
        before = {"weights": states(learner, alone).weights, **_rollout_parts(learner, plan.rows, alone, copied=False)}
        moments.insert(0, Moment(stage="grpo", name="start", parts={**beside, **before}))
    if copied:
        copying = {"gathered": max(learner.shape.parameter_sizes()) * learner.weight_bytes}
        copying["weight copies"] = drawing["weight copies"]
        moments.insert(1, Moment(stage="grpo", name="copying", parts={**standing, **beside, **copying}))
    if reference is not None:
        passing, left = reading(reference, lengths)
        work = max(passing, left + scoring_workspace(reference, sum(lengths.completions)))
        parts = {**standing, **beside, "reference": held + fetched, "passing": work}
        moments.append(Moment(stage="grpo", name="scoring", parts=parts))
    in_update = beside | ({"reference": held + fetched} if plan.full_kl else {})
    return moments + update_moments("grpo", learner, lengths, sharding, in_update)


def _head_bytes(reward: Any, hidden: int) -> int:
    """Of CLIPO's head: a matrix to its dimension, and a square one before it where it has two layers."""
    if (head := reward.get("head")) is None:
        return 0
    square = hidden**2 if str(head._target_).endswith("MLPHead") else 0
    return TRAINED * (square + hidden * head.dimension)


def _evaluate(plan: Experiment, _: Sharding) -> list[Moment]:
    """The policy alone, with as many greedy rows as the engine draws at a time, as long as in training."""
    engine, learner, alone = plan.config.suite.engine, plan.learner, by_name("gpu", 1)
    if _uses_server(engine):
        return []
    rows = first_rows(engine, plan.rollouts, prompts=plan.config.budget.evaluate.problems, group_size=1)
    parts = {"weights": states(learner, alone).weights, **_rollout_parts(learner, rows, alone, copied=False)}
    return [Moment(stage="evaluate", name="rollout", parts=parts)]


MOMENTS: dict[str, Callable[[Experiment, Sharding], list[Moment]]] = {
    "warm_start": _warm_start,
    "critic": _critic,
    "grpo": _grpo,
    "evaluate": _evaluate,
}


def uncounted(plan: Experiment) -> Iterator[str]:
    """What the figures leave out or assume of this experiment, in sentences."""
    config = plan.config
    if plan.rollouts.assumed:
        yield f"prompts of {plan.rollouts.prompt_tokens} tokens are an assumption: set prompt_tokens=NUMBER"
    if ("critic" in config.stages or plan.critic) and config.critic.get("encoder") is None:
        yield "the critic is a small network and not counted"
    if plan.server:
        yield "the vLLM server: the least it can do with; it takes what --gpu-memory-utilization gives it"
    if plan.full_kl:
        yield "the logits of the KL over the whole vocabulary are not counted"
    if config.policy.get("kernels") == "liger":
        yield "log-probs are counted as torch computes them; liger's kernel needs less"
    if config.policy.get("compiled"):
        yield "activations are counted as without compilation, which keeps less"
