"""Curves over training with bands over seeds, as SVG inside of the page; one legend for all of them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from experiments.analysis.comparison import CURVE
from experiments.analysis.curves import Curve, draw_on, look
from experiments.analysis.report.gather import Gathered, identity
from experiments.analysis.runs import TRAINING_STAGES
from experiments.mlflow_sync import TrackedRun

VALIDATION = (CURVE, "val/verifier/accuracy")
HEALTH = (
    *("train/reward/outcome", "train/reward/verifier", "train/verdict/ok", "train/reward/critic"),
    *("train/reward/oracle", "train/rollout/completion_tokens", "train/rollout/truncated", "train/rollout/surprisal"),
    *("train/advantage/informative_groups", "train/objective/approx_kl", "train/objective/clip_fraction"),
    *("train/optimizer/gradient_norm", "train/alarm/repeated_states", "train/clipo/loss"),
    *("train/clipo/positive_cosine", "train/critic/ece"),
)
"""Rewards, length, entropy (surprisal estimates it) and what else shows whether a policy learns."""
CRITIC = (
    *("train/critic/loss", "val/critic/categorical_accuracy", "val/oracle/auroc_depth1", "val/oracle/ece"),
    "val/probe/positive_cosine",
)
"""Whether a critic does, over the optimizer steps of its own stage."""
MOST_POINTS = 60
"""Of a curve; where more were logged, each point is the mean of its share of them."""
MOST_ARMS = 14
"""As many as differ in colour and dashes at a glance."""
LARGE, SMALL = (11.0, 4.2), (4.6, 2.9)
"""Inches."""
SVG_DASHES = {"-": "none", "--": "7 3", "-.": "7 3 2 3", ":": "2 3"}
TEXT_STAYS_TEXT: Any = {"svg.fonttype": "none", "svg.hashsalt": "report", "font.family": "sans-serif"}
"""Settings of matplotlib; the same picture makes the same file."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One metric of all arms."""

    metric: str
    stages: str
    """That logged it."""
    svg: Markup


def charts(found: Gathered, curve: str | None) -> tuple[list[Chart], list[Chart]]:
    """Success, large, then the health of training; ``curve`` replaces the former."""
    large = list(_charts(found, [curve] if curve else VALIDATION, size=LARGE))
    return large, list(_charts(found, [*HEALTH, *CRITIC], size=SMALL))


def legend(found: Gathered) -> list[tuple[str, str, str]]:
    """Colour, dashes and text of each arm that is drawn."""
    entries = []
    for place, arm in enumerate(found.arms[:MOST_ARMS]):
        colour, dashes = look(place)
        entries.append((colour, SVG_DASHES[dashes], f"{arm.label} ({len(arm.runs)})"))
    return entries


def _charts(found: Gathered, metrics: Sequence[str], *, size: tuple[float, float]) -> Iterator[Chart]:
    """A chart for each metric that is neither constant throughout nor the same as one before."""
    before: list[list[Sequence[Mapping[int, float]]]] = []
    for metric in metrics:
        stages = dict(_stages(found, metric))
        curves = dict(_curves(found, metric, stages))
        seeds = [curve.seeds for curve in curves.values()]
        if len({value for curve in curves.values() for value in curve.values}) > 1 and seeds not in before:
            before.append(seeds)
            names = ", ".join(dict.fromkeys(run.tags["stage"] for place in curves for run in stages[place]))
            yield Chart(metric=metric, stages=names, svg=_draw(curves, metric, size))


def _stages(found: Gathered, metric: str) -> Iterator[tuple[int, list[TrackedRun]]]:
    """Place of the arm → its stages that logged the metric. A critic that several seeds or arms share is there once: it
    is one critic, and shows nothing of the spread over seeds."""
    seen: set[tuple[str, str]] = set()
    for place, arm in enumerate(found.arms[:MOST_ARMS]):
        new = {identity(run): run for run in found.logged(arm, metric)}
        yield place, [run for key, run in new.items() if key not in seen or run.tags["stage"] == TRAINING_STAGES[0]]
        seen |= new.keys()


def _curves(found: Gathered, metric: str, stages: Mapping[int, Sequence[TrackedRun]]) -> Iterator[tuple[int, Curve]]:
    """By the place of the arm, whose colour it has in every picture."""
    for place, runs in stages.items():
        read = [found.tracker.history(run.run_id, metric) for run in runs]
        curve = Curve(label=found.arms[place].label, seeds=thin_out(read))
        if curve.seeds and curve.steps:
            yield place, curve


def thin_out(histories: Sequence[Sequence[tuple[int, float]]]) -> list[dict[int, float]]:
    """At most about ``MOST_POINTS`` points each: where there are more, means of what is finite in the same stretches of
    steps. A stretch of nothing finite is nan, one and the same, so that alike histories are equal."""
    logged = [history for history in histories if history]
    longest = max(map(len, logged), default=0)
    width = 1 if longest <= MOST_POINTS else -(-max(history[-1][0] + 1 for history in logged) // MOST_POINTS)
    thinned = []
    for history in logged:
        stretches: dict[int, list[float]] = {}
        for step, value in history:
            finite = stretches.setdefault(step // width * width, [])
            finite += [value] if math.isfinite(value) else []
        thinned.append({step: fmean(finite) if finite else math.nan for step, finite in stretches.items()})
    return thinned


def _draw(curves: Mapping[int, Curve], metric: str, size: tuple[float, float]) -> Markup:
    with text_stays_text():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw_on(axes, list(curves.values()), metric=metric, places=list(curves))
        axes.set_xlabel("training steps")
        return as_svg(figure, label=f"{metric} over training steps: {', '.join(c.label for c in curves.values())}")


def text_stays_text() -> AbstractContextManager[None]:
    """What a picture is both drawn and written under."""
    return matplotlib.rc_context(TEXT_STAYS_TEXT)


def as_svg(figure: Figure, *, label: str) -> Markup:
    """The picture without the head of a file; ``label`` is read to those who do not see it."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    picture = Markup(text[text.index("<svg") :])  # of matplotlib, which escapes texts
    return Markup('<div role="img" aria-label="{}">{}</div>').format(label, picture)
