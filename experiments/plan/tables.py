"""A plan on the terminal: moments side by side, what does not fit and what would, the work of a step and its hours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from experiments.plan.moments import CONTEXT, SLACK, Moment
from experiments.plan.sharding import MILD_TO_STRONG, Sharding, by_name
from experiments.plan.stages import Experiment

GIB = 2**30
PARTS = (
    *("weights", "gathered", "gradients", "optimizer", "exchange", "reference", "critic", "head", "server"),
    *("activations", "passing", "loss", "cache", "logits", "weight copies"),
)
"""The rows, in this order; one that is nowhere is left out."""
WIDE = 160


def memory_table(moments: Sequence[Moment], *, on_cpu: bool) -> Table:
    """Parts by moment, in GiB on one device."""
    table = Table(caption="GiB on one device")
    table.add_column("", no_wrap=True)
    for moment in moments:
        table.add_column(f"{moment.stage}\n{moment.name}", justify="right", no_wrap=True)
    for part in PARTS:
        sizes = [moment.parts.get(part, 0) for moment in moments]
        if any(sizes):
            table.add_row(part, *(gib(size) if size else "" for size in sizes))
    if not on_cpu:
        besides = [moment.total(on_cpu=False) - moment.tensors for moment in moments]
        table.add_row("context, slack", *map(gib, besides))
    table.add_section()
    table.add_row("total", *(gib(moment.total(on_cpu=on_cpu)) for moment in moments))
    return table


def gib(size: int) -> str:
    """Three digits, so that a laptop's megabytes are not nothing."""
    value = size / GIB
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def fullest(moments: Sequence[Moment], *, on_cpu: bool) -> Moment:
    """The moment that needs most."""
    return max(moments, key=lambda moment: moment.total(on_cpu=on_cpu))


def verdict(plan: Experiment, sharding: Sharding, memory: float) -> str:
    """Whether the fullest moment fits, and where it does not the mildest trainer under which it would."""
    on_cpu = plan.learner.on_cpu
    worst = fullest(plan.moments(sharding), on_cpu=on_cpu)
    needs = worst.total(on_cpu=on_cpu) / GIB
    where = f"{worst.stage} {worst.name}"
    if needs <= memory:
        return f"fits: needs {needs:.1f} of {memory:g} GiB, in {where}"
    for name in MILD_TO_STRONG:
        other = fullest(plan.moments(by_name(name, sharding.devices)), on_cpu=on_cpu)
        least = other.total(on_cpu=on_cpu) / GIB
        if least <= memory:
            would = f"the mildest that fits of {', '.join(MILD_TO_STRONG)}: trainer={name}, {least:.1f} GiB"
            break
    else:
        would = f"none of {', '.join(MILD_TO_STRONG)} fits on {sharding.devices}; what to lower: {lowered(other)}"
    return f"does not fit: needs {needs:.1f} of {memory:g} GiB, in {where}; {would}"


def lowered(moment: Moment) -> str:
    """The setting behind the largest part of a moment."""
    largest = max(moment.parts, key=lambda part: moment.parts[part])
    if largest in ("cache", "logits"):
        return "rollout.engine.max_batch_tokens"
    if largest in ("activations", "passing", "loss"):
        return "budget.grpo.microbatch_tokens" if moment.stage == "grpo" else f"budget.{moment.stage}.batch_size"
    if largest == "reference":
        return "the reference: module=grpo_reference_offloaded keeps it on the device only while it scores"
    return f"nothing but the policy's size: {largest} take most"


def show(console: Console, lines: Sequence[str | Table]) -> None:
    """Print them; where there is no terminal nothing is folded."""
    if not console.is_terminal:
        console.width = WIDE
    for line in lines:
        console.print(line, highlight=False, soft_wrap=not isinstance(line, Table))


def beside(*, on_cpu: bool) -> str:
    """What the last row but one of the table is."""
    if on_cpu:
        return "tensors alone; what Python and its libraries take comes on top, about 1 GiB"
    return f"context, slack: {CONTEXT / GIB:.1f} GiB of CUDA and libraries; {SLACK:.0%} of tensors, lost between blocks"
