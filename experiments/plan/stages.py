"""What an experiment's stages hold on one device at their fullest moment, and the rollouts that decide it.

A stage is as large as its largest moment:

    start      the whole policy before ZeRO-3 shards it, in validation: keys and values, logits
    rollout    the policy, its optimizer, keys and values, logits
    scoring    the policy, its optimizer, the reference's pass
    update     all states with the gradients of earlier micro-batches, activations, the workspace of one moment

Each includes what else is on the device, such as a reference that is not offloaded. Rollouts have their maximum length.
While rows come or go, the old and the new block of keys and values exist together, so the larger one counts twice:

    shared  =  prompts held · (longest + 1)      own  =  rows · longest completion      in tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.policies.shape import find_shape
from experiments.config.composition import critic_checkpoints, trains_warm_start
from experiments.plan.memory import (
    FLOAT,
    Learner,
    Sharding,
    activations,
    by_name,
    encoder_learner,
    learner_of,
    scoring,
    sharded_layers,
    size_of,
    states,
)

ASSUMED_PROMPT = 512
"""Tokens of a prompt if neither the budget nor an argument sets its length."""
AUTO_TOKENS = 65_536
"""What ``max_batch_tokens=auto`` is planned as, the default: it takes a share of the memory that is free in the run."""
DRAWING = 20
"""Bytes per logit while a token is sampled: logits, probabilities and their cumulative sum in fp64."""
CONTEXT = int(0.8 * 2**30)
"""Bytes of a GPU in use before any tensor: CUDA context and library workspaces, 0.5 to 1 GiB on recent cards."""
SLACK = 0.05
"""Share of the tensors' bytes that the caching allocator holds but cannot use, in blocks of unsuitable sizes."""
GIB = 2**30

Parts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A moment of a stage and the bytes of its parts."""

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
class Rollouts:
    """The rollouts of a step over all devices, and the micro-batch of one device."""

    problems: int
    group_size: int
    prompt_tokens: int
    completion_tokens: int
    """Longest completion."""
    mean_tokens: int
    """Average length of a completion, for the work of a step."""
    microbatch_tokens: int
    assumed: bool
    """Whether the prompt length is ``ASSUMED_PROMPT``."""


def even_lengths(groups: int, size: int, *, prompt: int, completion: int) -> Lengths:
    """Returns lengths of ``groups`` groups of ``size`` completions, with one prompt and one completion length."""
    owner = [row // size for row in range(groups * size)]
    return Lengths(prompts=[prompt] * groups, completions=[completion] * len(owner), owner=owner)


def fullest_microbatch(rollouts: Rollouts, *, problems: int) -> Lengths:
    """Returns the lengths of a micro-batch that its budget allows: whole groups, rows of one group, or one row.

    Completions have their maximum length, or are just short enough for one more group or row to fit. Prompts count once
    for a group, so padded rows of short prompts exceed the budget a little. ``problems`` are those of one device.
    """
    budget, size, prompt = rollouts.microbatch_tokens, rollouts.group_size, rollouts.prompt_tokens
    group = prompt + size * rollouts.completion_tokens
    if group <= budget:
        groups, rows = min(problems, -(-budget // group), budget // (prompt + size)), size
    else:
        groups, rows = 1, min(size, max(-(-(budget - prompt) // rollouts.completion_tokens), 1))
    longest = (budget - groups * prompt) // (groups * rows) if groups * rows > 1 else rollouts.completion_tokens
    return even_lengths(groups, rows, prompt=prompt, completion=min(longest, rollouts.completion_tokens))


class Rows(NamedTuple):
    """The rows that are sampled at once and the prompts that are held for them."""

    prompts: int
    rows: int
    waiting: bool
    """Whether further rows wait until one of these is finished."""


def first_rows(engine: Any, rollouts: Rollouts, *, prompts: int, group_size: int | None = None) -> Rows:
    """Returns the rows an engine starts with: in order, while prompts and completions fit its token budget."""
    size, prompt, completion = group_size or rollouts.group_size, rollouts.prompt_tokens, rollouts.completion_tokens
    rows, total = 1, prompts * size
    budget = AUTO_TOKENS if engine.max_batch_tokens == "auto" else engine.max_batch_tokens
    while rows < total and -(-(rows + 1) // size) * prompt + (rows + 1) * completion <= budget:
        rows += 1
    return Rows(-(-rows // size), rows, rows < total)


def cache_blocks(learner: Learner, rollouts: Rollouts, rows: Rows) -> tuple[int, int]:
    """Returns the bytes of the shared keys and values of the prompts and of the rows' own ones."""
    shape = learner.shape
    token = 2 * shape.num_hidden_layers * shape.key_width * (FLOAT if learner.on_cpu else learner.compute_bytes)
    return rows.prompts * (rollouts.prompt_tokens + 1) * token, rows.rows * rollouts.completion_tokens * token


def weight_copies(learner: Learner, *, sharded: bool) -> int:
    """Returns the bytes of matrices cast for sampling, or of a whole copy of a ``sharded`` policy."""
    shape, vocabulary, each = learner.shape, learner.shape.vocabulary_matrix, learner.compute_bytes
    decoder = shape.num_hidden_layers * shape.layer_weights
    if not sharded:  # layers with adapters are called as they are
        return (vocabulary + (0 if learner.adapters else decoder)) * each if learner.casts else 0
    each = min(each, learner.weight_bytes)
    shared = shape.tie_word_embeddings and each == learner.weight_bytes
    embedding = 0 if shared else vocabulary * learner.weight_bytes
    return (vocabulary + decoder) * each + embedding + learner.adapters * learner.compute_bytes


def rollout_parts(learner: Learner, rollouts: Rollouts, rows: Rows, sharding: Sharding, *, copied: bool) -> Parts:
    """Returns the parts of sampling, without weights and optimizer. ``copied``: from a copy of a sharded policy."""
    shared, own = cache_blocks(learner, rollouts, rows)
    compute = learner.compute_bytes
    return {
        # without a copy, stage 3 gathers the whole policy once
        "gathered": 0 if copied else learner.weights_in_bytes - states(learner, sharding).weights,
        "cache": shared + max(shared, own) + (own if rows.waiting else 0),
        "logits": learner.shape.vocab_size * (rows.rows * (DRAWING + compute) + rows.prompts * compute),
        "weight copies": weight_copies(learner, sharded=copied),
    }


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The models and rollouts of an experiment."""

    config: Any
    learner: Learner
    source: str
    """Where the policy's shape was read."""
    rollouts: Rollouts
    reference: Learner | None
    full_kl: bool
    """Whether the reference also runs in every update."""

    def fullest(self, sharding: Sharding) -> list[Moment]:
        """Returns the fullest moment of each stage that holds more than a small network."""
        found = [MOMENTS[stage](self, sharding) for stage in self.config.stages]
        return [max(moments, key=lambda moment: moment.tensors) for moments in found if moments]

    @property
    def served(self) -> bool:
        """Whether a vLLM server draws the rollouts."""
        return _uses_server(self.config.rollout.engine)

    @property
    def critic(self) -> int:
        """Bytes of a text critic beside the policy. Other critics take a few MiB and count as 0."""
        encoder = self.config.critic.get("encoder")
        if encoder is None or not [*critic_checkpoints(self.config.reward)]:
            return 0
        shape = find_shape(encoder.pretrained).shape
        backbone = shape.parameters - (0 if shape.tie_word_embeddings else shape.vocabulary_matrix)
        return backbone * size_of("critic.encoder.dtype", encoder.dtype)


def experiment_of(
    config: Any, *, on_cpu: bool, prompt_tokens: int | None = None, completion_tokens: int | None = None
) -> Experiment:
    """Reads the inputs of the cost formulas from the configuration.

    Raises ValueError if the shape of a model or a dtype is unknown.
    """
    learner, source = learner_of(config.policy, on_cpu=on_cpu)
    budget, limit = config.budget.grpo, int(config.rollout.sampling.max_tokens)
    given, kl = prompt_tokens or budget.max_prompt_tokens, config.objective.get("kl")
    rollouts = Rollouts(
        problems=budget.problems,
        group_size=config.rollout.group_size,
        prompt_tokens=min(given or ASSUMED_PROMPT, max(learner.shape.max_position_embeddings - limit, 1)),
        completion_tokens=limit,
        mean_tokens=min(completion_tokens or limit, limit),
        microbatch_tokens=budget.microbatch_tokens,
        assumed=given is None,
    )
    compared = config.module.reference is not None and kl is not None and config.objective.get("kl_weight", 0.0) > 0
    return Experiment(
        config=config,
        learner=learner,
        source=source,
        rollouts=rollouts,
        reference=replace(learner, frozen=True) if compared else None,
        full_kl=compared and str((kl or {}).get("_target_")).endswith(".FullKL"),
    )


def _uses_server(engine: Any) -> bool:
    return str(engine._target_).endswith("VLLMEngine")


def update(stage: str, learner: Learner, lengths: Lengths, sharding: Sharding, beside: Parts) -> Moment:
    """Returns an update by a micro-batch, with the gradients of an earlier one in memory."""
    kept, workspace = activations(replace(learner, gathered=sharding.stage == 3), lengths)
    parts = {**states(learner, sharding)._asdict(), **beside, "activations": kept, "workspace": workspace}
    return Moment(stage=stage, name="update", parts=parts)


def _warm_start(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """A warm start passes a whole batch at once; no moment if the policy is not trained."""
    if not trains_warm_start(plan.config) or plan.config.warm_start.module is None:
        return []
    rows, rollouts = -(-plan.config.budget.warm_start.batch_size // sharding.devices), plan.rollouts
    lengths = even_lengths(rows, 1, prompt=rollouts.prompt_tokens, completion=rollouts.completion_tokens)
    return [update("warm_start", plan.learner, lengths, sharding, {})]


def _critic(plan: Experiment, sharding: Sharding) -> list[Moment]:
    """A text critic encodes a batch of steps and one of goals; other critics have no moment."""
    encoder = plan.config.critic.get("encoder")
    if encoder is None:
        return []
    rows = 2 * -(-plan.config.datamodule.batch_size // sharding.devices)
    lengths = even_lengths(rows, 1, prompt=1, completion=plan.config.critic.max_length - 1)
    return [update("critic", encoder_learner(encoder, plan.learner), lengths, sharding, {})]


def _grpo(plan: Experiment, sharding: Sharding) -> list[Moment]:
    learner, reference, config, alone = plan.learner, plan.reference, plan.config, by_name("gpu", 1)
    problems = -(-plan.rollouts.problems // sharding.devices)  # the budget's batch is split over all devices
    lengths = fullest_microbatch(plan.rollouts, problems=problems)
    rows = first_rows(config.rollout.engine, plan.rollouts, prompts=problems)
    own = states(learner, sharding)
    held, fetched = 0, 0
    if reference is not None:
        held, fetched = sharded_layers(reference, sharding.devices if config.module.shard_reference else 1)
    # a server takes at least the weights in the compute dtype, and keys and values of the rows requested at a time
    server = learner.shape.parameters * learner.compute_bytes + sum(cache_blocks(learner, plan.rollouts, rows))
    beside = {"reference": 0 if config.module.offload_reference else held, "critic": plan.critic}
    if plan.served:
        drawing: Parts = {"server": server}
        beside["server"] = 0 if config.rollout.engine.sleep_level is not None else server
    else:
        copied = sharding.stage == 3 and config.rollout.copy_weights
        drawing = rollout_parts(learner, plan.rollouts, rows, sharding, copied=copied)
    standing = {"weights": own.weights, "optimizer": own.optimizer, "exchange": own.exchange, **beside}
    moments = [Moment(stage="grpo", name="rollout", parts={**standing, **drawing})]
    if sharding.stage == 3 and not plan.served:
        before = rollout_parts(learner, plan.rollouts, rows, alone, copied=False)
        parts = {"weights": learner.weights_in_bytes, **beside, **before}
        moments.append(Moment(stage="grpo", name="start", parts=parts))
    if reference is not None:
        reference = replace(reference, gathered=config.module.shard_reference)
        parts = {**standing, "reference": held + fetched, "workspace": scoring(reference, lengths)}
        moments.append(Moment(stage="grpo", name="scoring", parts=parts))
    if plan.full_kl:
        beside["reference"] = held + fetched
    return [*moments, update("grpo", learner, lengths, sharding, beside)]


def _evaluate(plan: Experiment, _: Sharding) -> list[Moment]:
    """The policy alone, greedy rows up to the engine's limit, training lengths."""
    engine, learner = plan.config.suite.engine, plan.learner
    if _uses_server(engine):
        return []
    rows = first_rows(engine, plan.rollouts, prompts=plan.config.budget.evaluate.problems, group_size=1)
    drawing = rollout_parts(learner, plan.rollouts, rows, by_name("gpu", 1), copied=False)
    return [Moment(stage="evaluate", name="rollout", parts={"weights": learner.weights_in_bytes, **drawing})]


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
    if plan.served:
        yield "the vLLM server: the least it can do with; it takes what --gpu-memory-utilization gives it"
    if config.harness is not None:
        yield "the harness loads the policy a second time, which is not counted"
    if plan.full_kl:
        yield "the logits of the KL over the whole vocabulary are not counted"
