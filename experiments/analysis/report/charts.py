"""Curves over training with one legend for all, and bars of gains, as inline SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from experiments.analysis.comparison import CURVE
from experiments.analysis.figures import Curve, draw_curves_on, draw_gains, look, thin_out
from experiments.analysis.report.gather import Gathered, identity
from experiments.analysis.runs import TRAINING_STAGES, stages_with
from experiments.mlflow_sync import TrackedRun

VALIDATION = (CURVE, "val/verifier/accuracy")
HEALTH = (
    *("train/reward/outcome", "train/reward/verifier", "train/verdict/ok", "train/reward/critic"),
    *("train/reward/oracle", "train/rollout/completion_tokens", "train/rollout/truncated", "train/rollout/surprisal"),
    *("train/advantage/informative_groups", "train/objective/approx_kl", "train/objective/clip_fraction"),
    *("train/optimizer/gradient_norm", "train/alarm/repeated_states", "train/clipo/loss"),
    *("train/clipo/positive_cosine", "train/critic/ece"),
)
"""Metrics of a policy's training: rewards, length, entropy (estimated by surprisal), and others."""
CRITIC = (
    *("train/critic/loss", "val/critic/categorical_accuracy", "val/oracle/auroc_depth1", "val/oracle/ece"),
    "val/probe/positive_cosine",
)
"""Metrics of a critic's training, over the optimizer steps of its own stage."""
MOST_POINTS = 60
"""The most points of a curve; if more were logged, each point is the mean of a range of steps."""
MOST_ARMS = 14
"""The most arms that are drawn; their colours and line styles are easy to distinguish."""
SVG_DASHES = {"-": "none", "--": "7 3", "-.": "7 3 2 3", ":": "2 3"}
TEXT_STAYS_TEXT: Any = {"svg.fonttype": "none", "svg.hashsalt": "report", "font.family": "sans-serif"}
"""Settings of matplotlib: text stays text, and equal pictures give equal files."""


def charts(found: Gathered, curve: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the large charts, of success, and the small ones, of training health.

    Each has its metric, the stages that logged it and its picture. ``curve`` replaces success.
    """
    large = list(_charts(found, [curve] if curve else VALIDATION, size=(11.0, 4.2)))
    return large, list(_charts(found, [*HEALTH, *CRITIC], size=(4.6, 2.9)))


def legend(found: Gathered) -> list[tuple[str, str, str]]:
    """Colour, line style and text of each drawn arm."""
    looks = [(*look(place), arm) for place, arm in enumerate(found.arms[:MOST_ARMS])]
    return [(colour, SVG_DASHES[dashes], f"{arm.label} ({len(arm.runs)})") for colour, dashes, arm in looks]


def gains(found: Gathered) -> Markup | None:
    """The bars of the comparison; None without a baseline."""
    table = found.comparison.table
    return _as_svg(partial(draw_gains, table), label=f"What each arm gained over {table.compared_to}: {table.metric}")


def _charts(found: Gathered, metrics: Sequence[str], *, size: tuple[float, float]) -> Iterator[dict[str, Any]]:
    """Yields a chart for each metric that is not constant and not equal to an earlier one."""
    before: list[list[Sequence[Mapping[int, float]]]] = []
    for metric in metrics:
        stages = dict(_stages(found, metric))
        read = {place: [found.tracker.history(run.run_id, metric) for run in runs] for place, runs in stages.items()}
        curves = {
            place: Curve(label=found.arms[place].label, seeds=thin_out(seeds, most=MOST_POINTS))
            for place, seeds in read.items()
        }
        curves = {place: curve for place, curve in curves.items() if curve.seeds and curve.steps}
        seeds = [curve.seeds for curve in curves.values()]
        if len({value for curve in curves.values() for value in curve.values}) > 1 and seeds not in before:
            before.append(seeds)
            names = ", ".join(dict.fromkeys(run.tags["stage"] for place in curves for run in stages[place]))
            label = f"{metric} over training steps: {', '.join(curve.label for curve in curves.values())}"
            svg = _as_svg(partial(_draw, curves, metric, size), label=label)
            yield {"metric": metric, "stages": names, "svg": svg}


def _stages(found: Gathered, metric: str) -> Iterator[tuple[int, list[TrackedRun]]]:
    """Yields for each arm its index, which decides its colour in every picture, and its stages that logged the metric.

    A critic that several seeds or arms share occurs once: it is one critic and has no spread over seeds.
    """
    seen: set[tuple[str, str]] = set()
    for place, arm in enumerate(found.arms[:MOST_ARMS]):
        new = {identity(run): run for run in stages_with(metric, arm, found.stages)}
        yield place, [run for key, run in new.items() if key not in seen or run.tags["stage"] == TRAINING_STAGES[0]]
        seen |= new.keys()


def _draw(curves: Mapping[int, Curve], metric: str, size: tuple[float, float]) -> Figure:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    draw_curves_on(axes, list(curves.values()), metric=metric, places=list(curves))
    axes.set_xlabel("training steps")
    return figure


def _as_svg(draw: Callable[[], Figure | None], *, label: str) -> Markup | None:
    """The SVG element of a picture, without the file header; ``label`` is its text for screen readers."""
    file = io.StringIO()
    with matplotlib.rc_context(TEXT_STAYS_TEXT):
        if (figure := draw()) is None:
            return None
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    picture = Markup(text[text.index("<svg") :])  # safe: matplotlib escapes texts
    return Markup('<div role="img" aria-label="{}">{}</div>').format(label, picture)
