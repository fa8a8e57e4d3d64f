"""Prints a plan: a memory table by moment, whether it fits and what would fit, the work of a step and its hours.

    rollout    a forward pass over every prompt, once, and every completion
    scoring    more forward passes: of the reference, and of the policy on all mini-batches but the first
    update     forward and backward, for each update

    hours = steps · operations / (devices · peak · mfu)

The formulas are those of ``policies.pass_cost``, so ``mfu`` is ``train/throughput/step_utilisation`` of a run. They
count each true token once, and neither padding nor recomputation in the backward pass. Validation and evaluation are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from contrastive_reasoning.policies.pass_cost import learning_flops, reading_flops, work_of
from contrastive_reasoning.policies.shape import find_shape
from experiments.config.known_models import READ_THE_POLICY
from experiments.plan.learner import MILD_TO_STRONG, Learner, Sharding, by_name, encoder_learner, sharding_of
from experiments.plan.stages import CONTEXT, GIB, SLACK, Experiment, Moment, assumptions, experiment_of, fits, mildest
from experiments.system.devices import host_memory

if TYPE_CHECKING:
    from experiments.plan.__main__ import Options

TERA, MILLION = 1e12, 1e6
H100 = 989.0
"""Peak of an H100 in 10¹² operations per second: bfloat16, dense, from its data sheet."""
MFU = 0.4
"""Share of the peak that a step is assumed to reach."""
PYTHON = 1.0
"""GiB of a process before it allocates tensors: Python and its libraries."""
PARTS = (
    *("weights", "gathered", "gradients", "optimizer", "exchange", "reference", "critic", "head", "server"),
    *("activations", "passing", "loss", "cache", "logits", "weight copies"),
)
"""The rows of the table, in this order; an empty row is left out."""
TAKING = {
    "weights": "the weights take",
    "gathered": "the gathered weights take",
    "gradients": "the gradients take",
    "optimizer": "the optimizer takes",
    "exchange": "the exchange of gradients takes",
    "critic": "the critic takes",
    "head": "CLIPO's head takes",
    "server": "the vLLM server takes",
    "weight copies": "the copies of weights take",
}
"""Parts whose size follows from the model alone → subject and verb."""
WIDE = 160


def show(console: Console, config: Any, trainer: str, node: Mapping[str, Any], options: Options) -> None:
    """Prints the whole plan. Outside a terminal, lines are not wrapped.

    Args:
        console: prints the plan.
        config: the composed configuration of the experiment.
        trainer: the choice of the group ``trainer``.
        node: the resolved content of that choice.
        options: the plan's own arguments.

    Raises:
        ValueError: if the shape of a model is unknown, or an argument is out of range.
    """
    if not console.is_terminal:
        console.width = WIDE
    for line in list(_page(config, trainer, node, options)):
        console.print(line, highlight=False, soft_wrap=not isinstance(line, Table))


def _page(config: Any, trainer: str, node: Mapping[str, Any], options: Options) -> Iterator[str | Table]:
    sharding = sharding_of(trainer, node, gpus=options.gpus)
    on_cpu = node.get("accelerator") == "cpu"
    plan = experiment_of(
        config,
        on_cpu=on_cpu,
        devices=sharding.devices,
        prompt_tokens=options.prompt_tokens,
        completion_tokens=options.completion_tokens,
    )
    models, source = _models(plan)
    yield f"{config.name}: {models}; trainer={trainer}, devices: {sharding.devices} ({'CPU' if on_cpu else 'GPU'})"
    if source is not None:
        yield f"shape: {source}"
    moments = plan.moments(sharding)
    if source is None:
        yield "fits: the critic takes a few MiB"
    elif moments:
        yield _memory_table(moments, on_cpu=on_cpu)
        if on_cpu:
            yield _host_verdict(plan, sharding)
        else:
            lost = f"{SLACK:.0%} of tensors, lost between blocks"
            yield f"context, slack: {CONTEXT / GIB:.1f} GiB of CUDA and libraries; {lost}"
            yield _verdict(plan, sharding, options.gpu_memory)
    if "grpo" in config.stages:
        yield from _work_lines(plan, sharding, options)
    yield from (f"note: {sentence}" for sentence in assumptions(plan))


def _models(plan: Experiment) -> tuple[str, str | None]:
    """Returns the models that the stages load, and the source of their shape; None if they load only a small critic."""
    config, encoder = plan.config, plan.config.critic.get("encoder")
    if READ_THE_POLICY & set(config.stages):
        return _described(config.policy.pretrained or "a fresh policy", plan.learner), plan.source
    if encoder is None:
        return "no policy, and a critic that is a small network", None
    found = find_shape(encoder.pretrained)
    return f"no policy; {_described(encoder.pretrained, encoder_learner(encoder, plan.learner))}", found.source


def _described(name: str, learner: Learner) -> str:
    trained = "all of them" if learner.full else f"{_millions(learner.trained)} more in adapters, which are"
    return (
        f"{name}, {_millions(learner.shape.parameters)} parameters, "
        f"{'none of them' if learner.frozen else trained} trained"
    )


def _millions(parameters: int) -> str:
    """Formats a count as ``8,030 million`` or ``1.2 million``."""
    return f"{parameters / MILLION:{',.0f' if parameters >= 100 * MILLION else '.2g'}} million"


def _memory_table(moments: Sequence[Moment], *, on_cpu: bool) -> Table:
    """Returns a table of parts by moment, in GiB on one device."""
    rows = {part: [moment.parts.get(part, 0) for moment in moments] for part in PARTS}
    totals = [moment.total(on_cpu=on_cpu) for moment in moments]
    rows["context, slack"] = [total - moment.tensors for total, moment in zip(totals, moments, strict=True)]
    table = Table(caption="GiB on one device")
    table.add_column("", no_wrap=True)
    for moment in moments:
        table.add_column(f"{moment.stage}\n{moment.name}", justify="right", no_wrap=True)
    for part, sizes in rows.items():
        if any(sizes):
            table.add_row(part, *(_gib(size) if size else "" for size in sizes))
    table.add_section()
    table.add_row("total", *map(_gib, totals))
    return table


def _gib(size: int) -> str:
    """Formats bytes in GiB; small values get more decimals, so that a laptop's megabytes are not shown as 0."""
    value = size / GIB
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def _verdict(plan: Experiment, sharding: Sharding, memory: float) -> str:
    """Returns whether the fullest moment fits with a tenth of the GPU free and, if not, what would."""
    worst, needs = plan.fullest(sharding)
    of = f"needs {needs:.1f} of {memory:g} GiB, in {worst.stage} {worst.name}"
    if fits(needs, memory):
        return f"fits: {of}"
    would = what_fits(plan, sharding.devices, memory)
    return f"fits closely: {of}; {would}" if needs <= memory else f"does not fit: {of}; {would}"


def what_fits(plan: Experiment, devices: int, memory: float) -> str:
    """Returns the mildest trainer with which a plan fits GPUs of ``memory`` GiB, or what to lower if none does."""
    trainers = ", ".join(MILD_TO_STRONG)
    unsharded, worst = (plan.fullest(by_name(name, devices))[0] for name in (MILD_TO_STRONG[0], MILD_TO_STRONG[-1]))
    if (found := mildest(plan, MILD_TO_STRONG, devices=devices, memory=memory)) is None:
        return f"none of {trainers} fits on {devices} with a tenth free; {remedy(plan, worst)}"
    sharding, needs = found
    return (
        f"the mildest of {trainers} with a tenth free: trainer={sharding.trainer} trainer.devices={devices}, "
        f"{needs:.1f} GiB; {_smaller(plan, unsharded)} also needs less"
    )


def _host_verdict(plan: Experiment, sharding: Sharding) -> str:
    """Returns whether the fullest moment fits into the memory of this machine, which all its processes share."""
    worst, needs = fullest_on_host(plan, sharding)
    has, where = host_memory(), f"{worst.stage} {worst.name}"
    of = f"needs {needs:.1f} of the {has:.1f} GiB of this machine, in {where}, 1 GiB of Python and libraries included"
    return f"fits: {of}" if needs <= has else f"does not fit: {of}; {remedy(plan, worst)}"


def fullest_on_host(plan: Experiment, sharding: Sharding) -> tuple[Moment, float]:
    """Returns the fullest moment and the GiB of all CPU processes, Python included. The plan must have moments."""
    worst = max(plan.moments(sharding), key=lambda moment: moment.tensors)
    return worst, sharding.devices * (worst.total(on_cpu=True) / GIB + PYTHON)


def remedy(plan: Experiment, moment: Moment) -> str:
    """Returns what to change so that the largest part of a moment becomes smaller, as a clause."""
    largest = max(moment.parts, key=lambda part: moment.parts[part])
    if largest in TAKING:
        return f"{_smaller(plan, moment)} helps: {TAKING[largest]} most"
    if largest in ("cache", "logits"):
        return "what to lower: rollout.engine.max_batch_tokens"
    if largest == "reference":
        return (
            "what to lower: the reference: module.shard_reference=true leaves each device a share of it, "
            "module.offload_reference=true keeps it on the device only while it scores"
        )
    settings = {"grpo": "budget.grpo.microbatch_tokens", "critic": "datamodule.batch_size"}
    return f"what to lower: {settings.get(moment.stage, f'budget.{moment.stage}.batch_size')}"


def _smaller(plan: Experiment, moment: Moment) -> str:
    """Returns what makes the model that takes most of a moment smaller."""
    largest = max(moment.parts, key=lambda part: moment.parts[part])
    if moment.stage == "critic" or largest == "critic":
        return "a smaller backbone.pretrained"
    trained = largest in ("gradients", "optimizer", "exchange") and plan.learner.rank is None
    return "a smaller policy or adapter=lora" if trained else "a smaller policy"


class StepWork(NamedTuple):
    """Floating-point operations of the phases of one GRPO step, and its completion tokens, over all devices."""

    rollout: int
    scoring: int
    update: int
    generated: int
    """Completion tokens."""


def work_of_step(plan: Experiment) -> StepWork:
    """Returns the work of a GRPO step in which every rollout is trained on. Groups of equal rewards need no update."""
    size, rollouts, budget = plan.learner.decoder_size, plan.rollouts, plan.config.budget.grpo
    updates, minibatches, reference, full_kl = budget.updates, budget.minibatches, plan.reference, plan.full_kl
    rows = rollouts.problems * rollouts.group_size
    owner = [row // rollouts.group_size for row in range(rows)]
    work = work_of([rollouts.prompt_tokens] * rollouts.problems, [rollouts.mean_tokens] * rows, owner)
    read = reading_flops(size, work)
    by_reference = (updates if full_kl else 1) if reference else 0
    return StepWork(
        rollout=read,
        scoring=by_reference * read + read * (minibatches - 1) // minibatches,
        update=updates * learning_flops(size, work),
        generated=work.projected,
    )


def hours_of(plan: Experiment, work: StepWork, *, devices: int, tflops: float) -> float:
    """Returns the hours of all GRPO steps if each device runs ``tflops`` · 10¹² operations per second."""
    flops = work.rollout + work.scoring + work.update
    return plan.config.budget.grpo.steps * flops / (devices * tflops * TERA) / 3600


def _work_lines(plan: Experiment, sharding: Sharding, options: Options) -> Iterator[str]:
    """Yields the tokens and operations of a step, and the hours of all steps."""
    budget, rollouts, steps = plan.config.budget.grpo, plan.rollouts, plan.config.budget.grpo.steps
    work = work_of_step(plan)
    phases = {"rollout": work.rollout, "scoring": work.scoring, "update": work.update}
    flops = sum(phases.values())
    yield (
        f"grpo step: {rollouts.problems} problems × {rollouts.group_size} completions of {rollouts.mean_tokens} tokens "
        f"after prompts of {rollouts.prompt_tokens}: {work.generated:,} tokens generated, "
        f"{budget.updates * work.generated:,} learned"
    )
    each = ", ".join(f"{name} {amount / TERA:,.4g}" for name, amount in phases.items())
    yield f"           {flops / TERA:,.4g} TFLOP: {each}"
    tflops = options.tflops or (None if plan.learner.on_cpu else H100)
    if tflops is None:
        yield f"grpo: {steps} steps; tflops=NUMBER, the peak of this machine, adds the hours"
        return
    hours = hours_of(plan, work, devices=sharding.devices, tflops=tflops * options.mfu)
    peak = f"{options.mfu:.0%} of {tflops:g} TFLOP/s"
    yield f"grpo: {steps} steps take at least {hours:.3g} h, at {peak} on each of {sharding.devices}"
