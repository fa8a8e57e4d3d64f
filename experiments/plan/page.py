"""Prints a plan: the fullest moment of each stage, whether it fits, the work of a step and its hours.

    rollout    a forward pass over every prompt, once, and every completion
    scoring    more forward passes: of the reference, and of the policy on all mini-batches but the first
    update     forward and backward, for each update

    hours = steps · operations / (devices · peak · mfu)

The operations are those of ``policies.pass_cost``, so ``mfu`` is ``train/throughput/step_utilisation`` of a run.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from contrastive_reasoning.policies.pass_cost import learning_flops, reading_flops, work_of
from contrastive_reasoning.policies.shape import find_shape
from experiments.config.stages import reads_policy
from experiments.plan.memory import MILD_TO_STRONG, Sharding, by_name, encoder_learner, sharding_of
from experiments.plan.stages import CONTEXT, GIB, SLACK, Experiment, Moment, assumptions, experiment_of
from experiments.system.devices import host_memory

TERA, MILLION = 1e12, 1e6
H100 = 989.0
"""Peak of an H100 in 10¹² operations per second: bfloat16, dense, from its data sheet."""
PYTHON = 1.0
"""GiB of a process before it allocates tensors: Python and its libraries."""
LEFT_FREE = 0.1
"""Share of a GPU that should stay free for what the formulas miss."""
WIDE = 160
PARTS = (
    *("weights", "gathered", "gradients", "optimizer", "exchange", "reference", "critic", "server"),
    *("activations", "workspace", "cache", "logits", "weight copies"),
)
"""The rows of the table, in this order."""


def show(config: Any, options: Namespace) -> None:
    """Prints the plan of a configuration that was composed with Hydra's own. Outside a terminal, lines are not wrapped.

    Raises ValueError for a model of unknown shape.
    """
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    for line in list(_page(config, options)):  # a list: an error comes before the first line
        console.print(line, highlight=False, soft_wrap=not isinstance(line, Table))


def _page(config: Any, options: Namespace) -> Iterator[str | Table]:
    trainer: Any = OmegaConf.to_container(config.trainer, resolve=True)
    sharding = sharding_of(config.hydra.runtime.choices.trainer, trainer, gpus=options.gpus)
    on_cpu = trainer.get("accelerator") == "cpu"
    lengths = {"prompt_tokens": options.prompt_tokens, "completion_tokens": options.completion_tokens}
    plan = experiment_of(config, on_cpu=on_cpu, **lengths)
    models, source = _models(plan)
    device = "CPU" if on_cpu else "GPU"
    yield f"{config.name}: {models}; trainer={sharding.trainer}, devices: {sharding.devices} ({device})"
    if source is not None:
        yield f"shape: {source}"
    moments = plan.fullest(sharding)
    if source is None:
        yield "fits: the critic takes a few MiB"
    elif moments:
        yield _memory_table(moments, on_cpu=on_cpu)
        if not on_cpu:
            lost = f"{SLACK:.0%} of tensors, lost between blocks"
            yield f"context, slack: {CONTEXT / GIB:.1f} GiB of CUDA and libraries; {lost}"
        yield _verdict(plan, moments, sharding, options.gpu_memory)
    if "grpo" in config.stages:
        yield from _work_lines(plan, sharding, options)
    yield from (f"note: {sentence}" for sentence in assumptions(plan))


def _models(plan: Experiment) -> tuple[str, str | None]:
    """Returns the model that the stages load, and the source of its shape; None if they load only a small critic."""
    config, encoder = plan.config, plan.config.critic.get("encoder")
    if reads_policy(config):
        name, learner, source = config.policy.pretrained or "a fresh policy", plan.learner, plan.source
    elif encoder is None:
        return "no policy, and a critic that is a small network", None
    else:
        name, source = f"no policy; {encoder.pretrained}", find_shape(encoder.pretrained).source
        learner = encoder_learner(encoder, plan.learner)
    millions = f"{learner.shape.parameters / MILLION:,.1f} million parameters, {learner.trained / MILLION:,.1f} trained"
    return f"{name}, {millions}{' in adapters' if learner.adapters else ''}", source


def _memory_table(moments: Sequence[Moment], *, on_cpu: bool) -> Table:
    """Returns a table of parts by stage, in GiB on one device; empty rows are left out."""
    totals = [moment.total(on_cpu=on_cpu) for moment in moments]
    names = sorted({part for moment in moments for part in moment.parts}, key=PARTS.index)
    parts = {part: [moment.parts.get(part, 0) for moment in moments] for part in names}
    parts["context, slack"] = [total - moment.tensors for total, moment in zip(totals, moments, strict=True)]
    table = Table(caption="GiB on one device")
    table.add_column("", no_wrap=True)
    for moment in moments:
        table.add_column(f"{moment.stage}\n{moment.name}", justify="right", no_wrap=True)
    for part, sizes in parts.items():
        if any(sizes):
            table.add_row(part, *(_gib(size) if size else "" for size in sizes))
    table.add_section()
    table.add_row("total", *map(_gib, totals))
    return table


def _gib(size: int) -> str:
    value = size / GIB
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def _verdict(plan: Experiment, moments: Sequence[Moment], sharding: Sharding, memory: float) -> str:
    """Returns whether the fullest moment fits with a tenth of the GPU free and, if not, what would need less.

    On a CPU all processes share the memory of this machine.
    """
    worst, on_cpu = max(moments, key=lambda moment: moment.tensors), plan.learner.on_cpu
    needs, has, where, free = worst.total(on_cpu=on_cpu) / GIB, memory, "", LEFT_FREE
    if on_cpu:
        needs, has, free = sharding.devices * (needs + PYTHON), host_memory(), 0.0
        where = " of this machine, 1 GiB for each Python process included"
    of = f"needs {needs:.1f} of {has:.4g} GiB{where}, in {worst.stage} {worst.name}"
    if needs <= has * (1 - free):
        return f"fits: {of}"
    found = None if on_cpu else mildest(plan, MILD_TO_STRONG, devices=sharding.devices, memory=memory)
    milder = "" if found is None else f"trainer={found[0]} trainer.devices={sharding.devices} needs {found[1]:.1f}, or "
    return f"{'fits closely' if needs <= has else 'does not fit'}: {of}; {milder}{remedy(plan, worst)}"


def mildest(plan: Experiment, trainers: Sequence[str], *, devices: int, memory: float) -> tuple[str, float] | None:
    """Returns the first of these trainers that leaves a tenth of GPUs of ``memory`` GiB free, and what it needs."""
    for name in trainers:
        needs = max((moment.total(on_cpu=False) for moment in plan.fullest(by_name(name, devices))), default=0) / GIB
        if needs <= memory * (1 - LEFT_FREE):
            return name, needs
    return None


def remedy(plan: Experiment, moment: Moment) -> str:
    """Returns the setting to change so that the largest part of a moment becomes smaller."""
    largest = max(moment.parts, key=lambda part: moment.parts[part])
    batches = {"grpo": "budget.grpo.microbatch_tokens", "critic": "datamodule.batch_size"}
    batch = f"lower {batches.get(moment.stage, f'budget.{moment.stage}.batch_size')}"
    rows = "lower rollout.engine.max_batch_tokens"
    reference = "set module.offload_reference=true or module.shard_reference=true"
    settings = {"activations": batch, "workspace": batch, "cache": rows, "logits": rows, "reference": reference}
    if moment.stage == "critic" or largest == "critic":
        return settings.get(largest, "choose a smaller backbone.pretrained")
    return settings.get(largest, f"choose a smaller policy{' or adapter=lora' if plan.learner.full else ''}")


class StepWork(NamedTuple):
    """Floating-point operations of the phases of one GRPO step, and its completion tokens, over all devices."""

    rollout: int
    scoring: int
    update: int
    generated: int
    """Completion tokens."""

    @property
    def flops(self) -> int:
        return self.rollout + self.scoring + self.update


def work_of_step(plan: Experiment) -> StepWork:
    """Returns the work of a GRPO step in which every rollout is trained on. Groups of equal rewards need no update."""
    size, rollouts, budget = plan.learner.decoder_size, plan.rollouts, plan.config.budget.grpo
    updates, minibatches = budget.updates, budget.minibatches
    rows = rollouts.problems * rollouts.group_size
    owner = [row // rollouts.group_size for row in range(rows)]
    work = work_of([rollouts.prompt_tokens] * rollouts.problems, [rollouts.mean_tokens] * rows, owner)
    read = reading_flops(size, work)
    by_reference = (updates if plan.full_kl else 1) if plan.reference else 0
    return StepWork(
        rollout=read,
        scoring=by_reference * read + read * (minibatches - 1) // minibatches,
        update=updates * learning_flops(size, work),
        generated=work.projected,
    )


def hours_of(plan: Experiment, work: StepWork, *, devices: int, tflops: float) -> float:
    """Returns the hours of all GRPO steps if each device runs ``tflops`` · 10¹² operations per second."""
    return plan.config.budget.grpo.steps * work.flops / (devices * tflops * TERA) / 3600


def _work_lines(plan: Experiment, sharding: Sharding, options: Namespace) -> Iterator[str]:
    """Yields the tokens and operations of a step, and the hours of all steps."""
    budget, rollouts, work = plan.config.budget.grpo, plan.rollouts, work_of_step(plan)
    yield (
        f"grpo step: {rollouts.problems} problems × {rollouts.group_size} completions of {rollouts.mean_tokens} tokens "
        f"after prompts of {rollouts.prompt_tokens}: {work.generated:,} tokens generated, "
        f"{budget.updates * work.generated:,} learned"
    )
    phases = (f"{name} {getattr(work, name) / TERA:,.4g}" for name in ("rollout", "scoring", "update"))
    yield f"           {work.flops / TERA:,.4g} TFLOP: {', '.join(phases)}"
    tflops = options.tflops or (None if plan.learner.on_cpu else H100)
    if tflops is None:
        yield f"grpo: {budget.steps} steps; tflops=NUMBER, the peak of this machine, adds the hours"
        return
    hours = hours_of(plan, work, devices=sharding.devices, tflops=tflops * options.mfu)
    peak = f"{options.mfu:.0%} of {tflops:g} TFLOP/s"
    yield f"grpo: {budget.steps} steps take at least {hours:.3g} h, at {peak} on each of {sharding.devices}"
