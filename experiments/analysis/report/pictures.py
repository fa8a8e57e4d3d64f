"""The pictures of a page: curves and gains as inline SVG, and the pictures that runs, comparisons and sweeps logged.

Logged pictures are taken in turns, the first one of every kind, then the second ones, and so on:

    by kind    similarity: A B C    goals: A B    completions: C
    taken      similarity A, goals A, completions C │ similarity B, goals B │ similarity C

Every kind is shown, however many there are. The page names the owners of pictures above the limit.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import matplotlib
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from experiments.analysis.comparison import CURVE
from experiments.analysis.figures import Curve, draw_curves_on, draw_gains, look, thin_out
from experiments.analysis.report.gather import Gathered, identity
from experiments.analysis.runs import TRAINING_STAGES, stages_with, value_of
from experiments.mlflow_sync import Artifacts, TrackedRun
from experiments.system.secrets import without_paths

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

MOST = 20
"""The most logged pictures of a section, unless there are more kinds."""
WIDTH, HEIGHT, COLOURS = 1000, 1800, 128
"""Upper limits, in pixels and colours; traces and rows of panels are high, and not legible at a smaller height."""
LARGEST = 4_000_000
"""Largest file that is opened, in bytes."""
FOLDER = "figures"
FIRST = "similarity"
"""Pictures with this in their name come before the others of their stage."""
START_TOO = ("clipo/completions",)
"""Pictures that are shown at the first step and the last, to show how training changed the space."""
STAGES = ("critic", "grpo", "warm_start")
"""The order of the stages; others follow."""


def charts(found: Gathered, curve: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the large charts, of success or ``curve``, and the small ones, of training health."""
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
    """Yields metric, stages and picture for each metric that is not constant and not equal to an earlier one."""
    before: list[list[Sequence[Mapping[int, float]]]] = []
    for metric in metrics:
        stages = dict(_stages(found, metric))
        read = {place: [found.tracker.history(run.run_id, metric) for run in runs] for place, runs in stages.items()}
        thinned = {place: thin_out(histories, most=MOST_POINTS) for place, histories in read.items()}
        curves = {place: Curve(label=found.arms[place].label, seeds=seeds) for place, seeds in thinned.items() if seeds}
        curves = {place: curve for place, curve in curves.items() if curve.steps}
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
    with matplotlib.rc_context(TEXT_STAYS_TEXT):  # also around draw(): a text takes its font when it is created
        if (figure := draw()) is None:
            return None
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    picture = Markup(text[text.index("<svg") :])  # safe: matplotlib escapes texts
    return Markup('<div role="img" aria-label="{}">{}</div>').format(label, picture)


@dataclass(frozen=True, kw_only=True)
class Logged:
    """The pictures of one kind of an arm, comparison or sweep, which are shown together or not at all."""

    owner: str
    run_id: str
    captions: Mapping[str, str]
    """Path among the run's artifacts → caption."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The pictures that are shown, by kind, and the owners of those that are not."""

    shown: Mapping[str, Sequence[Mapping[str, str]]]
    """Kind → groups of pictures, each: caption → data URL."""
    left_out: Mapping[str, Sequence[str]]
    """Kind → its owners."""


def choose(artifacts: Artifacts, by_kind: Mapping[str, Sequence[Logged]], *, most: int = MOST) -> Chosen:
    """Takes kinds in turn until there are ``most`` pictures; of equal ones of a kind it takes only the first."""
    shown: dict[str, list[dict[str, str]]] = {}
    left_out: dict[str, list[str]] = {}
    seen: set[tuple[str, bytes]] = set()
    turns = (zip(by_kind, turn, strict=True) for turn in zip_longest(*by_kind.values()))
    for kind, logged in (pair for turn in turns for pair in turn):
        if logged is None:
            continue
        if kind in shown and sum(len(group) for groups in shown.values() for group in groups) >= most:
            left_out.setdefault(kind, []).append(logged.owner)
            continue
        read = {caption: artifacts.read(logged.run_id, path) for path, caption in logged.captions.items()}
        new = {caption: content for caption, content in read.items() if (kind, content) not in seen}
        seen |= {(kind, content) for content in new.values()}
        if group := {caption: url for caption, content in new.items() if (url := data_url(content))}:
            shown.setdefault(kind, []).append(group)
        if len(group) < len(new):
            left_out.setdefault(kind, []).append(f"{logged.owner} (too large, or no PNG)")
    return Chosen(shown={kind: shown[kind] for kind in by_kind if kind in shown}, left_out=left_out)


def data_url(content: bytes) -> str | None:
    """A PNG, scaled down and with fewer colours, as a data URL; None if it is too large or not a PNG."""
    if len(content) > LARGEST:
        return None
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as opened:
            small = opened.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError):  # not a PNG, or truncated
        return None
    small.thumbnail((WIDTH, HEIGHT))
    file = io.BytesIO()
    small.quantize(COLOURS).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def of_comparisons(found: Gathered) -> Chosen:
    """The pictures of comparisons, then of sweeps, of these experiments, the newest first."""
    by_kind: dict[str, list[Logged]] = {}
    for kind in ("comparison", "sweep"):
        for run in reversed(found.tracker.runs(found.names, kind=kind)):
            owner = f"{kind} {_label(run)}"
            for path in found.tracker.artifacts.files(run.run_id):
                name = path.removesuffix(".png")
                if name != path:
                    logged = Logged(owner=owner, run_id=run.run_id, captions={path: f"{name}: {owner}"})
                    by_kind.setdefault(f"{kind} {name}", []).append(logged)
    return choose(found.tracker.artifacts, by_kind)


def _label(run: TrackedRun) -> str:
    """The name of a comparison, or the name and overrides of a sweep."""
    if "sweep" not in run.tags:
        return run.tags.get("key", "without a name").removeprefix("compare/")
    overrides = without_paths(run.params.get("overrides", ""))
    return f"{run.tags['sweep']} of {run.experiment}{f', {overrides}' if overrides else ''}"


def of_runs(found: Gathered) -> Chosen:
    """The pictures of each arm's newest run that logged them, at the last step; stages that arms share appear once.

    For ``START_TOO`` the first step is shown too.
    """
    stages = [
        (arm.label, value_of(run, "seed"), name, stage)
        for arm in found.arms
        for run in sorted(arm.runs.values(), key=lambda run: -run.start)
        for name, stage in found.stages.get(run.run_id, {}).items()
    ]
    first = {identity(stage): stage for *_, stage in reversed(stages)}
    pictures = {same: steps_of(found.tracker.artifacts.files(stage.run_id, FOLDER)) for same, stage in first.items()}
    rows = [
        (arm, seed, name, identity(stage), picture, steps)
        for arm, seed, name, stage in stages
        for picture, steps in pictures[identity(stage)].items()
    ]
    table = pd.DataFrame(rows, columns=["arm", "seed", "stage", "same", "picture", "steps"])
    table = table.drop_duplicates(["arm", "stage", "picture"]).drop_duplicates(["same", "picture"])
    by_kind: dict[tuple[str, str], list[Logged]] = {}
    for arm, seed, name, same, picture, steps in table.itertuples(index=False):
        shown = dict.fromkeys((steps[0], steps[-1]) if picture in START_TOO else steps[-1:])
        captions = {path: f"{picture} at step {step} of {name}: {arm}, seed {seed}" for step, path in shown}
        by_kind.setdefault((name, picture), []).append(Logged(owner=arm, run_id=first[same].run_id, captions=captions))

    def order(kind: tuple[str, str]) -> tuple[int, str, bool, str]:
        stage, name = kind
        return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage, FIRST not in name, name)

    return choose(found.tracker.artifacts, {" ".join(kind): by_kind[kind] for kind in sorted(by_kind, key=order)})


def steps_of(files: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """Picture name → (step, file) of each ``figures/<name>/<step>.png``, the lowest step first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for path in files:
        name, _, step = path.removeprefix(f"{FOLDER}/").removesuffix(".png").rpartition("/")
        if path.endswith(".png") and step.isdigit():
            found.setdefault(name, []).append((int(step), path))
    return {name: sorted(steps) for name, steps in found.items()}
