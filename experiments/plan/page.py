"""The lines of a plan, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from experiments.plan.options import H100, Options
from experiments.plan.sharding import Sharding, sharding_of
from experiments.plan.stages import Experiment, experiment_of, uncounted
from experiments.plan.tables import beside, memory_table, verdict
from experiments.plan.work import StepWork, hours, step_work

TERA, MILLION = 1e12, 1e6


def page(config: Any, trainer: str, node: Mapping[str, Any], options: Options) -> list[str | Table]:
    """The whole plan.

    Args:
        config: of the experiment, composed.
        trainer: the choice of that group.
        node: its content, resolved.
        options: the plan's own arguments.

    Raises:
        ValueError: where the shape of a model is not known, or an argument is out of range.
    """
    sharding = sharding_of(trainer, node, gpus=options.gpus)
    on_cpu = node.get("accelerator") == "cpu"
    plan = experiment_of(config, options, on_cpu=on_cpu, devices=sharding.devices)
    moments = plan.moments(sharding)
    lines: list[str | Table] = [heading(plan, sharding)]
    if moments:
        lines += [memory_table(moments, on_cpu=on_cpu), beside(on_cpu=on_cpu)]
        lines += [] if on_cpu else [verdict(plan, sharding, options.gpu_memory)]
    if "grpo" in config.stages:
        lines += work_lines(plan, sharding, options)
    return [*lines, *(f"note: {sentence}" for sentence in uncounted(plan))]


def heading(plan: Experiment, sharding: Sharding) -> str:
    """Which model on which devices."""
    learner, config = plan.learner, plan.config
    counted = f"{millions(learner.shape.parameters)} parameters"
    trained = (
        "all of them trained" if learner.full else f"{millions(learner.trained)} more in adapters, which are trained"
    )
    devices = f"{sharding.devices} ({'CPU' if learner.on_cpu else 'GPU'})"
    policy = config.policy.pretrained or "a fresh policy"
    return (
        f"{config.name}: {policy}, {counted}, {trained}; trainer={sharding.trainer}, devices: {devices}\n"
        f"shape: {plan.source}"
    )


def millions(parameters: int) -> str:
    """``8,030 million``, or ``1.2 million``."""
    return (
        f"{parameters / MILLION:,.0f} million" if parameters >= 100 * MILLION else f"{parameters / MILLION:.2g} million"
    )


def work_lines(plan: Experiment, sharding: Sharding, options: Options) -> list[str]:
    """Tokens and operations of a step, and the hours of all steps."""
    budget = plan.config.budget.grpo
    work = step_work(
        plan.learner.decoder_size,
        plan.rollouts,
        updates=budget.updates,
        minibatches=budget.minibatches,
        reference=plan.others.reference is not None,
        full_kl=plan.others.full_kl,
    )
    lines = [
        f"grpo step: {plan.rollouts.problems} problems × {plan.rollouts.group_size} completions of "
        f"{plan.rollouts.mean_tokens} tokens after prompts of {plan.rollouts.prompt_tokens}: "
        f"{work.generated:,} tokens generated, {work.learned:,} learned",
        f"           {operations(work)}",
    ]
    tflops = options.tflops or (None if plan.learner.on_cpu else H100)
    if tflops is None:
        return [*lines, f"grpo: {budget.steps} steps; tflops=NUMBER, the peak of this machine, says the hours"]
    taken = hours(work.flops, steps=budget.steps, devices=sharding.devices, tflops=tflops, mfu=options.mfu)
    peak = f"{options.mfu:.0%} of {tflops:g} TFLOP/s"
    return [*lines, f"grpo: {budget.steps} steps take {taken:.3g} h at {peak} on each of {sharding.devices}"]


def operations(work: StepWork) -> str:
    """Of a step and its phases, in 10¹² floating-point operations."""
    phases = {"rollout": work.rollout, "scoring": work.scoring, "update": work.update}
    parts = ", ".join(f"{name} {flops / TERA:,.4g}" for name, flops in phases.items())
    return f"{work.flops / TERA:,.4g} TFLOP: {parts}"
