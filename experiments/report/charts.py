"""Curves over training with bands over seeds, as pictures inside of the page; one legend for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from matplotlib.figure import Figure

from experiments.analysis.comparison import CURVE
from experiments.analysis.curves import CAPTION, GAPS, Curve, draw_on, look
from experiments.report.gathered import Gathered, identity
from experiments.report.markup import Html, element, section
from experiments.report.svg import as_svg, quiet
from experiments.tracking.tracked_run import TrackedRun

STAGES = ("grpo", "critic", "warm_start")
VALIDATION = (CURVE, "val/verifier/accuracy")
HEALTH = (
    *("train/reward/outcome", "train/reward/verifier", "train/verdict/ok", "train/reward/critic"),
    *("train/reward/oracle", "train/rollout/completion_tokens", "train/rollout/truncated", "train/rollout/surprisal"),
    *("train/advantage/informative_groups", "train/objective/approx_kl", "train/objective/clip_fraction"),
    *("train/optimizer/gradient_norm", "train/alarm/repeated_states", "train/clipo/loss"),
    *("train/clipo/positive_cosine", "train/critic/ece"),
)
"""Rewards, length, entropy (surprisal estimates it) and what else tells whether a policy learns."""
CRITIC = (
    *("train/critic/loss", "val/critic/categorical_accuracy", "val/oracle/auroc_depth1", "val/oracle/ece"),
    "val/probe/positive_cosine",
)
"""Whether a critic does, over the optimizer steps of its own stage."""
MOST_POINTS = 60
"""Of a curve; where more were logged, each point is the mean of its share of them."""
MOST_ARMS = 14
"""As many as differ in colour and dashes at a glance."""
SWATCH = "M0 6 H28"
SVG_DASHES = {"-": "none", "--": "7 3", "-.": "7 3 2 3", ":": "2 3"}


def charts(found: Gathered, curve: str | None) -> Html:
    """The section: success first, then the health of training; ``curve`` replaces the former."""
    wanted = [curve] if curve else [*VALIDATION]
    drawn = list(_pictures(found, wanted, size=(11.0, 4.2)))
    small = list(_pictures(found, [*HEALTH, *CRITIC], size=(4.6, 2.9)))
    if not drawn and not small:
        return Html("")
    parts = [element("div", picture, class_="wide") for picture in drawn]
    if small:
        parts.append(element("div", *small, class_="pictures"))
    left_out = len(found.arms) - MOST_ARMS
    more = f" The last {left_out} of the arms above are not drawn." if left_out > 0 else ""
    about = (
        f"{CAPTION}{GAPS} Of more than {MOST_POINTS} points each drawn one is a mean of finite ones. What stayed "
        "constant, or equals another picture, is left out. Steps are those of the stage in brackets; GRPO's are "
        f"rollout batches. A critic that several runs share counts once, under the first arm.{more}"
    )
    return section("Curves", _legend(found), *parts, element("p", about, class_="note"))


def _pictures(found: Gathered, metrics: Sequence[str], *, size: tuple[float, float]) -> Iterator[Html]:
    """A picture for each metric that tells something: neither constant throughout, nor the same as one before."""
    before: list[list[Sequence[Mapping[int, float]]]] = []
    for metric in metrics:
        stages = dict(_stages(found, metric))
        curves = dict(_curves(found, metric, stages))
        seeds = [curve.seeds for curve in curves.values()]
        values = {value for arm in seeds for history in arm for value in history.values() if math.isfinite(value)}
        if len(values) > 1 and seeds not in before:
            before.append(seeds)
            of = ", ".join(dict.fromkeys(run.tags["stage"] for place in curves for run in stages[place]))
            caption = element("figcaption", metric, element("span", f" ({of})"))
            yield element("figure", caption, _drawn(curves, metric, size))


def _stages(found: Gathered, metric: str) -> Iterator[tuple[int, list[TrackedRun]]]:
    """Place of the arm → its stages that logged the metric. A critic that several seeds or arms share is there once: it
    is one critic, and says nothing of the spread over seeds."""
    seen: set[tuple[str, str]] = set()
    for place, arm in enumerate(found.arms[:MOST_ARMS]):
        new = {identity(run): run for run in found.stages_of(arm, metric, STAGES)}
        yield place, [run for key, run in new.items() if key not in seen or run.tags["stage"] == STAGES[0]]
        seen |= new.keys()


def _curves(found: Gathered, metric: str, stages: Mapping[int, Sequence[TrackedRun]]) -> Iterator[tuple[int, Curve]]:
    """By the place of the arm, whose colour it has in every picture."""
    for place, runs in stages.items():
        read = [found.tracker.history(run.run_id, metric) for run in runs]
        curve = Curve(label=found.arms[place].label, seeds=thinned(read))
        if curve.seeds and curve.steps:
            yield place, curve


def thinned(histories: Sequence[Sequence[tuple[int, float]]]) -> list[dict[int, float]]:
    """At most about ``MOST_POINTS`` points each: where there are more, means over the same stretches of steps.

    What is no finite number is nan, and so is the mean of a stretch of nothing else. It is one and the same nan: alike
    histories are equal.
    """
    logged = [history for history in histories if history]
    longest = max(map(len, logged), default=0)
    width = 1 if longest <= MOST_POINTS else -(-max(history[-1][0] + 1 for history in logged) // MOST_POINTS)
    return [_means(history, width) for history in logged]


def _means(history: Sequence[tuple[int, float]], width: int) -> dict[int, float]:
    """The mean of what is finite in each ``width`` steps, at the first of them."""
    stretches: dict[int, list[float]] = {}
    for step, value in history:
        finite = stretches.setdefault(step // width * width, [])
        finite += [value] if math.isfinite(value) else []
    return {step: fmean(finite) if finite else math.nan for step, finite in stretches.items()}


def _drawn(curves: Mapping[int, Curve], metric: str, size: tuple[float, float]) -> Html:
    with quiet():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw_on(axes, list(curves.values()), metric=metric, places=list(curves))
        axes.set_xlabel("training steps")
        return as_svg(figure, said=f"{metric} over training steps: {', '.join(c.label for c in curves.values())}")


def _legend(found: Gathered) -> Html:
    entries = []
    for place, arm in enumerate(found.arms[:MOST_ARMS]):
        colour, dashes = look(place)
        line = element(
            "path", d=SWATCH, stroke=colour, **{"stroke-width": "2.5", "stroke-dasharray": SVG_DASHES[dashes]}
        )
        entries.append(element("li", element("svg", line, width="28", height="12"), f"{arm.label} ({len(arm.runs)})"))
    return element("ul", *entries, class_="legend")
