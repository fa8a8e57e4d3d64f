"""Credit as it is learned from: a page with the advantage of each token, and a figure of the steps of two traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import Any

import lightning as L
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from callbacks.figures import LABEL_COLOURS, NEGATIVE, POSITIVE, colour, due, limit_of, log_figure, watching
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rewards.oracle import in_reach
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.rollout.spans import readable, tokens_of_span
from contrastive_reasoning.tasks.base import Task, Verdict

SHARES = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Where the legend shows colours, as shares of the scale's end."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
body { margin: 1.5rem auto; max-width: 64rem; padding: 0 1rem; background: #fff; color: #1a1a1a;
       font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
.legend b { font-weight: normal; padding: .15rem .6rem; border: 1px solid #ccc; }
pre { margin: .3rem 0; padding: .5rem .7rem; border: 1px solid #ddd; white-space: pre-wrap; overflow-wrap: anywhere;
      font: .92rem/1.7 ui-monospace, Menlo, Consolas, monospace; unicode-bidi: isolate; }
.prompt, .numbers { color: #555; } .numbers { margin: .2rem 0; overflow-wrap: anywhere; }
"""
LONGEST = 34
"""Characters of a step's text."""
LAST_PLAIN = 0x24F
"""Fonts may lack what lies beyond it, which is written as an escape."""
UNKNOWN = "0.45"
CAPTION = "Left: mean advantage of the step's tokens. Right: the reward's value of the state reached."


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One completion with the advantage of each token."""

    heading: str
    """Its verdict and the reason."""
    numbers: Mapping[str, float]
    """Numbers of the whole completion, by name."""
    prompt: str
    tokens: Sequence[str]
    """What each token spells."""
    advantages: Sequence[float]
    """Of each token."""

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.advantages):
            raise ValueError(f"a trace of {len(self.tokens)} tokens has {len(self.advantages)} advantages")


def credit_page(traces: Sequence[Trace], *, step: int, longest: int) -> str:
    """The page: at most ``longest`` tokens of a completion, and four times as many characters of a prompt.

    It holds what a policy wrote and what people made problems of: all of it is escaped, nothing is fetched, no script
    runs.
    """
    limit = limit_of(value for trace in traces for value in trace.advantages)
    body = "".join(_section(trace, limit, longest) for trace in traces)
    title = f"Advantage per token, step {step:,}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n{_legend(limit)}{body}</body></html>\n"
    )


def _legend(limit: float) -> str:
    if limit == 0:
        return '<p class="legend">All advantages are 0.</p>\n'
    swatches = " ".join(
        f'<b style="background:{colour(share * limit, limit)}">{number(share * limit)}</b>' for share in SHARES
    )
    return f'<p class="legend">{swatches} &nbsp; Point at a token to read its own.</p>\n'


def _section(trace: Trace, limit: float, longest: int) -> str:
    numbers = " · ".join(f"{name} {number(value)}" for name, value in trace.numbers.items())
    left_out = len(trace.tokens) - longest
    more = f'<p class="numbers">… {left_out} more tokens</p>\n' if left_out > 0 else ""
    shown = zip(trace.tokens[:longest], trace.advantages[:longest], strict=True)
    tokens = "".join(_token(text, value, limit) for text, value in shown)
    return (
        f'<h2>{escape(trace.heading)}</h2>\n<p class="numbers">{escape(numbers)}</p>\n'
        f'<pre class="prompt">{escape(trace.prompt[: 4 * longest])}</pre>\n<pre>{tokens}</pre>\n{more}'
    )


def _token(text: str, value: float, limit: float) -> str:
    return f'<span style="background:{colour(value, limit)}" title="{number(value)}">{escape(text)}</span>'


def number(value: float) -> str:
    """Three digits with a sign."""
    return f"{value:+.3g}".replace("-", "−") if value else "0"


class StepCredit(L.Callback):
    """Draws the first training batch and every ``every``-th: steps downwards, credit as bars, values beside it.

    Of the batch the first correct and the first incorrect completion that has steps; nothing where the reward values no
    steps or the policy was not updated. Reads ``credit`` and ``advantages`` of the module. Only watches.

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
        if not due(step, self.every) or not watching(trainer) or pl_module.advantages is None or credit.steps is None:
            return
        verdicts = verdicts_of(self.task, batch.rollouts) if credit.verdicts is None else credit.verdicts
        traces = [
            step_trace(self.task, batch.rollouts, credit, pl_module.advantages, verdicts[row], row)
            for row in self.rows(batch.rollouts, verdicts)
        ]
        if traces:
            log_figure(trainer, "train/step_credit", draw(traces, step=step, most=self.steps), step)

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
    colours = [tuple(channel / 255 for channel in (POSITIVE if step.credit > 0 else NEGATIVE)) for step in steps]
    panel.barh(places, [step.credit for step in steps], color=colours, height=0.62)
    panel.axvline(0, color="0.2", linewidth=0.9)
    panel.set_yticks(
        places, labels=[plain(step.text, LONGEST) for step in steps], parse_math=False, family="monospace", fontsize=9
    )
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


def plain(text: str, longest: int) -> str:
    """One line that every font can write: spaces for white space, escapes for what is not seen or far from Latin."""
    line = " ".join(readable(text).split())
    safe = "".join(
        c if c.isprintable() and ord(c) <= LAST_PLAIN else c.encode("unicode_escape").decode() for c in line[:longest]
    )
    return safe if len(safe) <= longest and len(line) <= longest else f"{safe[: longest - 1]}…"


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


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """One completion as it is drawn."""

    problem: str
    correct: bool
    reason: str
    steps: Sequence[TracedStep]


def step_trace(
    task: Task, rollouts: RolloutBatch, credit: Credit, advantages: Tensor, verdict: Verdict, row: int
) -> StepTrace:
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
    return StepTrace(problem=problem.id, correct=verdict.correct, reason=verdict.reason, steps=steps)
