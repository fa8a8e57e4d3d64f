"""The page of a plan: moments side by side, what does not fit and what would, the work of a step and its hours.

    rollout    reading every prompt once and every completion
    scoring    reading again: by the reference, and by the policy of all mini-batches but the first
    update     forward and backward, for each update

    hours = steps · operations / (devices · peak · mfu)

The formulas are those of ``policies.pass_cost``, so ``mfu`` is ``train/throughput/step_utilisation`` of a run: true
tokens once, nothing for padding or for what is recomputed in the backward pass. Validation and evaluation are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from contrastive_reasoning.policies.pass_cost import DecoderSize, learning_flops, reading_flops, work_of
from experiments.plan.learner import MILD_TO_STRONG, Sharding, by_name, sharding_of
from experiments.plan.rollouts import Rollouts
from experiments.plan.stages import CONTEXT, SLACK, Experiment, Moment, experiment_of, uncounted
from experiments.system.devices import host_memory

if TYPE_CHECKING:
    from experiments.plan.__main__ import Options

GIB, TERA, MILLION = 2**30, 1e12, 1e6
H100 = 989.0
"""10¹² operations a second in bfloat16, dense, by its data sheet."""
MFU = 0.4
"""Share of the peak that a step is taken to use."""
PYTHON = 1.0
"""GiB of a process before any tensor: Python and its libraries."""
PARTS = (
    *("weights", "gathered", "gradients", "optimizer", "exchange", "reference", "critic", "head", "server"),
    *("activations", "passing", "loss", "cache", "logits", "weight copies"),
)
"""The rows of the table, in this order; one that is empty is left out."""
WIDE = 160


def show(console: Console, config: Any, trainer: str, node: Mapping[str, Any], options: Options) -> None:
    """Print the whole plan; outside a terminal no line is folded.

    Args:
        console: where to.
        config: of the experiment, composed.
        trainer: the choice of that group.
        node: its content, resolved.
        options: the plan's own arguments.

    Raises:
        ValueError: where the shape of a model is not known, or an argument is out of range.
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
    learner = plan.learner
    trained = "all of them" if learner.full else f"{_millions(learner.trained)} more in adapters, which are"
    yield (
        f"{config.name}: {config.policy.pretrained or 'a fresh policy'}, {_millions(learner.shape.parameters)} "
        f"parameters, {trained} trained; trainer={trainer}, devices: {sharding.devices} ({'CPU' if on_cpu else 'GPU'})"
    )
    yield f"shape: {plan.source}"
    if moments := plan.moments(sharding):
        yield _memory_table(moments, on_cpu=on_cpu)
        if on_cpu:
            yield _host_verdict(plan, sharding)
        else:
            lost = f"{SLACK:.0%} of tensors, lost between blocks"
            yield f"context, slack: {CONTEXT / GIB:.1f} GiB of CUDA and libraries; {lost}"
            yield _verdict(plan, sharding, options.gpu_memory)
    if "grpo" in config.stages:
        yield from _work_lines(plan, sharding, options)
    yield from (f"note: {sentence}" for sentence in uncounted(plan))


def _millions(parameters: int) -> str:
    """``8,030 million``, or ``1.2 million``."""
    return f"{parameters / MILLION:{',.0f' if parameters >= 100 * MILLION else '.2g'}} million"


def _memory_table(moments: Sequence[Moment], *, on_cpu: bool) -> Table:
    """Parts by moment, in GiB on one device."""
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
    """Three digits, so that a laptop's megabytes are not nothing."""
    value = size / GIB
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def _verdict(plan: Experiment, sharding: Sharding, memory: float) -> str:
    """Whether the fullest moment fits, and where it does not the mildest trainer under which it would."""

    def fullest(spread: Sharding) -> tuple[Moment, float]:
        worst = max(plan.moments(spread), key=lambda moment: moment.tensors)
        return worst, worst.total(on_cpu=False) / GIB

    worst, needs = fullest(sharding)
    where, trainers = f"{worst.stage} {worst.name}", ", ".join(MILD_TO_STRONG)
    if needs <= memory:
        return f"fits: needs {needs:.1f} of {memory:g} GiB, in {where}"
    for name in MILD_TO_STRONG:
        other, least = fullest(by_name(name, sharding.devices))
        if least <= memory:
            would = f"the mildest that fits of {trainers}: trainer={name}, {least:.1f} GiB"
            break
    else:
        would = f"none of {trainers} fits on {sharding.devices}; what to lower: {setting_behind(other)}"
    return f"does not fit: needs {needs:.1f} of {memory:g} GiB, in {where}; {would}"


def _host_verdict(plan: Experiment, sharding: Sharding) -> str:
    """Whether the fullest moment fits into the memory of this machine, which all its processes share."""
    worst, needs = fullest_on_host(plan, sharding)
    has, where = host_memory(), f"{worst.stage} {worst.name}"
    of = f"needs {needs:.1f} of the {has:.1f} GiB of this machine, in {where}, 1 GiB of Python and libraries included"
    return f"fits: {of}" if needs <= has else f"does not fit: {of}; what to lower: {setting_behind(worst)}"


def fullest_on_host(plan: Experiment, sharding: Sharding) -> tuple[Moment, float]:
    """The fullest moment of CPU processes, and GiB of all of them with Python; of a plan that has moments."""
    worst = max(plan.moments(sharding), key=lambda moment: moment.tensors)
    return worst, sharding.devices * (worst.total(on_cpu=True) / GIB + PYTHON)


def setting_behind(moment: Moment) -> str:
    """The setting behind the largest part of a moment."""
    largest = max(moment.parts, key=lambda part: moment.parts[part])
    if largest in ("cache", "logits"):
        return "rollout.engine.max_batch_tokens"
    if largest in ("activations", "passing", "loss"):
        settings = {"grpo": "budget.grpo.microbatch_tokens", "critic": "datamodule.batch_size"}
        return settings.get(moment.stage, f"budget.{moment.stage}.batch_size")
    if largest == "reference":
        return (
            "the reference: module.shard_reference=true leaves each device a share of it, "
            "module.offload_reference=true keeps it on the device only while it scores"
        )
    return f"nothing but the policy's size: {largest} take most"


class StepWork(NamedTuple):
    """Of one GRPO step, over all devices: floating-point operations of its phases, and tokens of completions."""

    rollout: int
    scoring: int
    update: int
    generated: int
    """Tokens of completions."""


def step_work(
    size: DecoderSize, rollouts: Rollouts, *, updates: int, minibatches: int, reference: bool, full_kl: bool
) -> StepWork:
    """Where every rollout teaches; groups of equal rewards, which need no update, make it less."""
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


def work_of_step(plan: Experiment) -> StepWork:
    """Of one GRPO step of an experiment."""
    budget = plan.config.budget.grpo
    return step_work(
        plan.learner.decoder_size,
        plan.rollouts,
        updates=budget.updates,
        minibatches=budget.minibatches,
        reference=plan.reference is not None,
        full_kl=plan.full_kl,
    )


def hours_of(plan: Experiment, work: StepWork, *, devices: int, tflops: float) -> float:
    """Of all GRPO steps, at so many 10¹² operations a second of each device."""
    flops = work.rollout + work.scoring + work.update
    return plan.config.budget.grpo.steps * flops / (devices * tflops * TERA) / 3600


def _work_lines(plan: Experiment, sharding: Sharding, options: Options) -> Iterator[str]:
    """Tokens and operations of a step, and the hours of all steps."""
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
        yield f"grpo: {steps} steps; tflops=NUMBER, the peak of this machine, says the hours"
        return
    hours = hours_of(plan, work, devices=sharding.devices, tflops=tflops * options.mfu)
    peak = f"{options.mfu:.0%} of {tflops:g} TFLOP/s"
    yield f"grpo: {steps} steps take {hours:.3g} h at {peak} on each of {sharding.devices}"
