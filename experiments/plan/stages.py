"""The moments of each stage at which memory use can peak, each with its parts in bytes on one device.

    start      the whole policy before it is sharded, in validation: keys and values, logits
    copying    the policy, its optimizer, the copy that rollouts are sampled from, the parameter being copied
    rollout    the policy, its optimizer, keys and values, logits
    scoring    the policy, its optimizer, the reference's pass
    forward    gradients of earlier micro-batches, kept activations, copies of weights
    loss       the same gradients and activations, and the chunks of logits
    backward   the same gradients and activations, and the workspace of one layer

Every moment includes what else is on the device: the weights, the optimizer (not at ``start`` or in evaluation), and
in GRPO a reference that is not offloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.policies.shape import find_shape
from experiments.config.composition import critic_checkpoints, trains_warm_start
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
"""Bytes of a GPU in use before any tensor: CUDA context and library workspaces, 0.5 to 1 GiB on recent cards."""
SLACK = 0.05
"""Share of the tensors' bytes that the caching allocator holds but cannot use, in blocks of unsuitable sizes."""
LEFT_FREE = 0.1
"""Share of a GPU left free: the formulas are within 15 % of measurements, most of them far closer."""
GIB = 2**30
TRAINED = 4 * (1 + 1 + 2)
"""Bytes of an fp32 parameter with its gradient and AdamW's two moments."""

Parts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One moment of a stage. Parts of 0 bytes are not shown."""

    stage: str
    name: str
    parts: Parts

    @property
    def tensors(self) -> int:
        return sum(self.parts.values())

    def total(self, *, on_cpu: bool) -> int:
        """Returns the bytes of the tensors and, on a GPU, of slack and context."""
        return self.tensors if on_cpu else int(self.tensors * (1 + SLACK)) + CONTEXT


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The inputs of the cost formulas for one experiment."""

    config: Any
    learner: Learner
    source: str
    """Where the policy's shape was read."""
    rollouts: Rollouts
    rows: Rows
    reference: Learner | None
    full_kl: bool
    """Whether the reference also runs in every update."""
    critic: int
    """Bytes of a text critic beside the policy. Other critics take a few MiB and count as 0."""
    server: int | None
    """Least bytes of a vLLM server on the same card; None: no server, 0: one on another card.

    They hold the weights in the compute dtype, and keys and values of the rows requested at a time. A server takes
    the share given by ``--gpu-memory-utilization`` and uses the rest of it for more rows.
    """

    def moments(self, sharding: Sharding) -> list[Moment]:
        return [moment for stage in self.config.stages for moment in MOMENTS[stage](self, sharding)]

    def fullest(self, sharding: Sharding) -> tuple[Moment, float]:
        """Returns the fullest moment on a GPU and its GiB. The experiment must have moments."""
        worst = max(self.moments(sharding), key=lambda moment: moment.tensors)
        return worst, worst.total(on_cpu=False) / GIB


def experiment_of(
    config: Any,
    *,
    on_cpu: bool,
    devices: int,
    prompt_tokens: int | None = None,
    completion_tokens: int | None = None,
) -> Experiment:
    """Reads the inputs of the cost formulas from the configuration.

    Raises:
        ValueError: if the shape of a model or a dtype is unknown.
    """
    learner, source = learner_of(config.policy, on_cpu=on_cpu)
    rollouts = rollouts_of(config, learner.shape, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
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
        server=server if _uses_server(config.rollout.engine) else None,
    )


def fits(needs: float, memory: float) -> bool:
    """Whether a GPU of ``memory`` GiB holds ``needs`` GiB with ``LEFT_FREE`` to spare."""
    return needs <= memory * (1 - LEFT_FREE)


def mildest(plan: Experiment, trainers: Sequence[str], *, devices: int, memory: float) -> tuple[Sharding, float] | None:
    """Returns the first of these trainers with which a plan fits GPUs of ``memory`` GiB, and the GiB that it needs."""
    for name in trainers:
        sharding = by_name(name, devices)
        needs = plan.fullest(sharding)[1] if plan.moments(sharding) else 0.0
        if fits(needs, memory):
            return sharding, needs
    return None


def _uses_server(engine: Any) -> bool:
    return str(engine._target_).endswith("VLLMEngine")


def update_moments(stage: str, learner: Learner, lengths: Lengths, sharding: Sharding, beside: Parts) -> list[Moment]:
    """Returns the moments of an update by a micro-batch, with the gradients of an earlier one in memory."""
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
    """Returns the parts of sampling completions, without the policy's weights and optimizer."""
    return {
        "gathered": 0 if copied else states(learner, sharding).all_gathered,
        "cache": cache_bytes(learner, rows),
        "logits": drawing_bytes(learner, rows),
        "weight copies": policy_copy(learner) if copied else decoder_copies(learner),
    }


def _warm_start(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """Returns the moments of a warm start, which passes a whole batch at once; none if the policy is not trained."""
    if not trains_warm_start(plan.config) or plan.config.warm_start.module is None:
        return []
    rows, rollouts = -(-plan.config.budget.warm_start.batch_size // sharding.devices), plan.rollouts
    lengths = even_lengths(rows, 1, prompt=rollouts.prompt_tokens, completion=rollouts.completion_tokens)
    return update_moments("warm_start", plan.learner, lengths, sharding, {})


def _critic(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """Returns the moment of a text critic, which encodes a batch of steps and one of goals; other critics have none."""
    encoder = plan.config.critic.get("encoder")
    if encoder is None:
        return []
    rows = 2 * -(-plan.config.datamodule.batch_size // sharding.devices)
    lengths = even_lengths(rows, 1, prompt=1, completion=plan.config.critic.max_length - 1)
    return update_moments("critic", encoder_learner(encoder, plan.learner), lengths, sharding, {})[-1:]


def _grpo(plan: Experiment, sharding: Sharding) -> list[Moment]:
    learner, reference, server, config = plan.learner, plan.reference, plan.server, plan.config
    problems = -(-plan.rollouts.problems // sharding.devices)  # the budget's batch is split over all devices
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
        "server": 0 if server is None or config.rollout.engine.sleep_level is not None else server,
    }
    copied = sharding.stage == 3 and config.rollout.copy_weights
    served = server is not None
    drawing = {"server": server} if served else _rollout_parts(learner, plan.rows, sharding, copied=copied)
    moments = [Moment(stage="grpo", name="rollout", parts={**standing, **beside, **drawing})]
    if sharding.stage == 3 and not served:
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
    """Returns the bytes of CLIPO's head: hidden × dimension, preceded by hidden × hidden if it has two layers."""
    if (head := reward.get("head")) is None:
        return 0
    square = hidden**2 if str(head._target_).endswith("MLPHead") else 0
    return TRAINED * (square + hidden * head.dimension)


def _evaluate(plan: Experiment, _: Sharding) -> list[Moment]:
    """Returns the moment of evaluation: the policy alone, greedy rows up to the engine's limit, training lengths."""
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


def assumptions(plan: Experiment) -> Iterator[str]:
    """Yields one sentence for each thing that the figures leave out or assume."""
    config = plan.config
    if plan.rollouts.assumed:
        yield f"prompts of {plan.rollouts.prompt_tokens} tokens are an assumption: set prompt_tokens=NUMBER"
    if ("critic" in config.stages or plan.critic) and config.critic.get("encoder") is None:
        yield "the critic is a small network and not counted"
    if plan.server is not None:
        yield "the vLLM server: the least it can do with; it takes what --gpu-memory-utilization gives it"
    if plan.full_kl:
        yield "the logits of the KL over the whole vocabulary are not counted"
    if config.policy.get("kernels") == "liger":
        yield "log-probs are counted as torch computes them; liger's kernel needs less"
    if config.policy.get("compiled"):
        yield "activations are counted as without compilation, which keeps less"
