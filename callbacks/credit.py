"""A figure of the steps of two completions: the credit of each step, and the value of the state that it reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import lightning as L
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from callbacks.figures import LABEL_COLOURS, LINE_COLOURS, due, log_with, watching
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rewards.base import verdicts_on
from contrastive_reasoning.rewards.oracle import in_reach
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.spans import readable, tokens_of_span
from contrastive_reasoning.tasks.base import Task, Verdict

LONGEST = 34
"""Maximum characters of a step's text."""
LAST_PLAIN = 0x24F
"""Last character that fonts are expected to have; characters beyond it are written as escapes."""
CAPTION = "Left: mean advantage of the step's tokens. Right: the reward's value of the state reached."
LOOKS = {
    None: ("0.45", "D", "no oracle"),
    True: (LABEL_COLOURS[1], "o", "target in reach"),
    False: (LABEL_COLOURS[0], "X", "target lost"),
}
"""Colour, marker, and what they mean, by whether the target can still be reached."""


@dataclass(kw_only=True, eq=False)
class StepCredit(L.Callback):
    """Draws the first training batch and every ``every``-th: steps downwards, credit as bars, values beside it.

    It shows the first correct and the first incorrect completion that has steps. It draws nothing if the reward values
    no steps or the policy was not updated. Reads ``credit`` and ``advantages`` of the module. Only watches.

    Raises:
        ValueError: if ``every`` or ``steps`` is below 1.
    """

    task: Task
    """Finds the steps, and verifies if the reward did not."""
    every: int
    steps: int
    """Maximum number of steps of a completion."""

    def __post_init__(self) -> None:
        for name in ("every", "steps"):
            at_least(1, **{f"callbacks.step_credit.{name}": getattr(self, name)})

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, rollouts = int(pl_module.rollout_step), batch.rollouts
        credit, advantages = pl_module.result.credit, pl_module.result.advantages
        if not due(step, self.every) or not watching(trainer) or advantages is None or credit.steps is None:
            return
        verdicts = verdicts_on(credit, self.task, rollouts)
        names = {row: title(rollouts.problem_of(row).id, verdicts[row]) for row in self.rows(rollouts, verdicts)}
        traces = {name: traced_steps(self.task, rollouts, credit, advantages, row) for row, name in names.items()}
        if traces:
            log_with(trainer, "log_figure", "train/step_credit", draw(traces, step=step, most=self.steps), step)

    def rows(self, rollouts: RolloutBatch, verdicts: Sequence[Verdict]) -> list[int]:
        """The first correct and the first incorrect rollout with a step, if there are any."""
        found: dict[bool, int] = {}
        for row, verdict in enumerate(verdicts):
            if verdict.correct not in found and self.task.parse_steps(rollouts.problem_of(row), rollouts.texts[row]):
                found[verdict.correct] = row
        return [found[kind] for kind in (True, False) if kind in found]


@dataclass(frozen=True, kw_only=True)
class TracedStep:
    """One step as it is drawn."""

    text: str
    credit: float
    """The mean advantage of its tokens."""
    value: float | None
    """The reward's value of the state it reached, if any."""
    in_reach: bool | None
    """Whether the target can still be reached after it; None without an oracle."""
    legal: bool


def traced_steps(task: Task, rollouts: RolloutBatch, credit: Credit, advantages: Tensor, row: int) -> list[TracedStep]:
    """The steps of one rollout, as the task reads them, each with the advantages of its own tokens."""
    problem, text = rollouts.problem_of(row), rollouts.texts[row]
    values = {step.first_token: step.value for step in (credit.steps or [[]] * len(rollouts))[row]}
    steps = []
    for step in task.parse_steps(problem, text):
        tokens = tokens_of_span(rollouts.token_spans[row], step.start, step.end)
        if tokens is not None:
            first, last = tokens
            steps.append(
                TracedStep(
                    text=text[step.start : step.end],
                    credit=float(advantages[row, first : last + 1].mean()),
                    value=values.get(first) if step.legal else None,
                    in_reach=in_reach(problem, step),
                    legal=step.legal,
                )
            )
    return steps


def draw(traces: dict[str, list[TracedStep]], *, step: int, most: int) -> Figure:
    """One row of panels for the first ``most`` steps of each completion, by its title, on common scales."""
    heights = [max(len(steps[:most]), 2) + 1.5 for steps in traces.values()]
    figure = Figure(figsize=(10.4, 1.6 + 0.34 * sum(heights)), layout="constrained")
    ratios = {"height_ratios": heights, "width_ratios": [3, 2]}
    axes = figure.subplots(len(traces), 2, squeeze=False, sharex="col", sharey="row", gridspec_kw=ratios)
    for (bars, values), (heading, steps) in zip(axes, traces.items(), strict=True):
        cut = f" (first {most} of {len(steps)} steps)" if len(steps) > most else ""
        shown = steps[:most]
        places = range(len(shown))
        bars.set_title(heading + cut, loc="left", fontsize=10, parse_math=False)
        colours = [LINE_COLOURS[0] if step.credit > 0 else LINE_COLOURS[1] for step in shown]
        bars.barh(places, [step.credit for step in shown], color=colours, height=0.62)
        bars.axvline(0, color="0.2", linewidth=0.9)
        labels = [plain(step.text, LONGEST) for step in shown]
        bars.set_yticks(places, labels=labels, parse_math=False, family="monospace", fontsize=9)
        bars.set_ylim(len(shown) - 0.4, -0.6)  # the first step on top
        for place, traced in enumerate(shown):
            colour, marker, _ = LOOKS[traced.in_reach]
            if traced.value is not None:
                values.plot([traced.value], [place], marker=marker, color=colour, markersize=8, linestyle="none")
            elif not traced.legal:
                values.annotate("illegal", (0.03, place), xycoords=("axes fraction", "data"), va="center", fontsize=9)
        values.grid(axis="x", color="0.9")
        values.set_axisbelow(True)
        values.tick_params(labelleft=False)
    axes[-1][0].set_xlabel("credit (advantage)")
    axes[-1][1].set_xlabel("value of the state reached")
    marked = chain(*(steps[:most] for steps in traces.values()))
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=name)
        for colour, marker, name in sorted({LOOKS[step.in_reach] for step in marked if step.value is not None})
    ]
    if handles:
        figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(f"Credit of single steps, rollout batch {step:,}", x=0.02, ha="left")
    figure.supxlabel(CAPTION, fontsize=8, color="0.25", x=0.02, ha="left")
    return figure


def title(problem: str, verdict: Verdict) -> str:
    judged = "correct" if verdict.correct else f"incorrect: {verdict.reason}"
    return f"{plain(problem, 50)} · {plain(judged, 60)}"


def plain(text: str, longest: int) -> str:
    """One line that every font can show: white space as spaces, escapes for invisible or non-Latin characters."""
    line = " ".join(readable(text).split())
    safe = "".join(
        c if c.isprintable() and ord(c) <= LAST_PLAIN else c.encode("unicode_escape").decode() for c in line[:longest]
    )
    return safe if len(safe) <= longest and len(line) <= longest else f"{safe[: longest - 1]}…"
