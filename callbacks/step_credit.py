"""Credit drawn over a trace: the steps of a correct and of an incorrect completion, and what each was taught."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import lightning as L
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from callbacks.diverging import ABOVE, BELOW
from callbacks.figures import LABEL_COLOURS, log_figure, watching
from callbacks.step_traces import StepTrace, TracedStep, step_trace
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Task, Verdict

FIGURE = "train/step_credit"
LONGEST = 34
"""Characters of a step's text."""
LAST_PLAIN = 0x24F
"""What lies beyond, fonts may not have: it is written as an escape."""
UNKNOWN = "0.45"
CAPTION = (
    "Left: mean advantage of the step's tokens, as it was learned from. Right: the reward's value of the state reached."
)


class StepCredit(L.Callback):
    """Draws the first training batch and every ``every``-th: steps downwards, credit as bars, values beside it.

    Of the batch the first correct and the first incorrect completion that has steps. Rewards that value no steps and
    batches that taught nothing are left out. Reads ``credit`` and ``advantages`` of the module. Only watches.

    Args:
        task: finds the steps, and verifies where the reward did not.
        every: rollout batches from one picture to the next.
        steps: of a completion, at most.

    Raises:
        ValueError: if ``every`` or ``steps`` is below 1.
    """

    def __init__(self, *, task: Task, every: int, steps: int) -> None:
        for name, value in {"every": every, "steps": steps}.items():
            if value < 1:
                raise ValueError(f"callbacks.step_credit.{name} must be at least 1, got {value}")
        self.task = task
        self.every = every
        self.steps = steps

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, credit = int(pl_module.rollout_step), pl_module.credit
        due = step == 1 or step % self.every == 0
        if not due or not watching(trainer) or pl_module.advantages is None or credit.steps is None:
            return
        verdicts = verdicts_of(self.task, batch.rollouts) if credit.verdicts is None else credit.verdicts
        traces = [
            step_trace(self.task, batch.rollouts, credit, pl_module.advantages, verdicts[row], row)
            for row in self.rows(batch.rollouts, verdicts)
        ]
        if traces:
            log_figure(trainer, FIGURE, draw(traces, step=step, most=self.steps), step)

    def rows(self, rollouts: RolloutBatch, verdicts: Sequence[Verdict]) -> list[int]:
        """The first correct and the first incorrect rollout with a step, of those there are."""
        found: dict[bool, int] = {}
        for row, verdict in enumerate(verdicts):
            if verdict.correct not in found and self.task.parse_steps(rollouts.problem_of(row), rollouts.texts[row]):
                found[verdict.correct] = row
        return [found[kind] for kind in (True, False) if kind in found]


def draw(traces: Sequence[StepTrace], *, step: int, most: int) -> Figure:
    """One row of panels a completion, on common scales."""
    shown = [trace.steps[:most] for trace in traces]
    heights = [max(len(steps), 2) + 1.5 for steps in shown]
    figure = Figure(figsize=(10.4, 1.6 + 0.34 * sum(heights)), layout="constrained")
    ratios = {"height_ratios": heights, "width_ratios": [3, 2]}
    axes = figure.subplots(len(traces), 2, squeeze=False, sharex="col", sharey="row", gridspec_kw=ratios)
    for (left, right), trace, steps in zip(axes, traces, shown, strict=True):
        _bars(left, steps)
        _values(right, steps)
        left.set_title(_title(trace, most), loc="left", fontsize=10, parse_math=False)
    axes[-1][0].set_xlabel("credit (advantage)")
    axes[-1][1].set_xlabel("value of the state reached")
    _key(figure, chain(*shown))
    figure.suptitle(f"Credit of single steps, rollout batch {step:,}", x=0.02, ha="left")
    figure.supxlabel(CAPTION, fontsize=8, color="0.25", x=0.02, ha="left")
    return figure


def _bars(panel: Axes, steps: Sequence[TracedStep]) -> None:
    places = range(len(steps))
    colours = [tuple(channel / 255 for channel in (ABOVE if step.credit > 0 else BELOW)) for step in steps]
    panel.barh(places, [step.credit for step in steps], color=colours, height=0.62)
    panel.axvline(0, color="0.2", linewidth=0.9)
    panel.set_yticks(places, labels=[_label(step) for step in steps], parse_math=False, family="monospace", fontsize=9)
    panel.set_ylim(len(steps) - 0.4, -0.6)  # the first step on top


def _values(panel: Axes, steps: Sequence[TracedStep]) -> None:
    for place, step in enumerate(steps):
        colour, marker, _ = _look(step)
        if step.value is not None:
            panel.plot([step.value], [place], marker=marker, color=colour, markersize=8, linestyle="none")
        elif not step.legal:
            panel.annotate("illegal", (0.03, place), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
    panel.tick_params(labelleft=False)


def _look(step: TracedStep) -> tuple[str, str, str]:
    """Colour, marker, and what they mean."""
    if step.in_reach is None:
        return UNKNOWN, "D", "no oracle"
    return (LABEL_COLOURS[1], "o", "target in reach") if step.in_reach else (LABEL_COLOURS[0], "X", "target lost")


def _key(figure: Figure, steps: Iterable[TracedStep]) -> None:
    """What the marks mean, of those that there are."""
    looks = sorted({_look(step) for step in steps if step.value is not None})
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=name) for colour, marker, name in looks
    ]
    if handles:
        figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False, fontsize=9)


def _title(trace: StepTrace, most: int) -> str:
    verdict = "correct" if trace.correct else f"incorrect: {trace.reason}"
    cut = f" (first {most} of {len(trace.steps)} steps)" if len(trace.steps) > most else ""
    return f"{plain(trace.problem, 50)} · {plain(verdict, 60)}{cut}"


def _label(step: TracedStep) -> str:
    return plain(step.text, LONGEST)


def plain(text: str, longest: int) -> str:
    """One line that every font can write: spaces for white space, escapes for what is not seen or far from Latin."""
    line = " ".join(readable(text).split())
    safe = "".join(
        c if c.isprintable() and ord(c) <= LAST_PLAIN else c.encode("unicode_escape").decode() for c in line[:longest]
    )
    return safe if len(safe) <= longest and len(line) <= longest else f"{safe[: longest - 1]}…"
