"""Pictures logged by runs, comparisons and sweeps: the first one of every kind, then the second ones, and so on.

    by kind    similarity: A B C    goals: A B    completions: C
    taken      similarity A, goals A, completions C │ similarity B, goals B │ similarity C

Every kind is shown, however many there are. The page names the owners of pictures above the limit.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from PIL import Image

from experiments.analysis.report.gather import Gathered, identity
from experiments.analysis.runs import value_of
from experiments.mlflow_sync import Artifacts, TrackedRun
from experiments.system.secrets import without_paths

MOST = 20
"""The most pictures of a section, unless there are more kinds."""
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
    shown: dict[str, list[dict[str, str]]] = {kind: [] for kind in by_kind}
    left_out: dict[str, list[str]] = {kind: [] for kind in by_kind}
    seen: dict[str, set[bytes]] = {kind: set() for kind in by_kind}
    turns = (zip(by_kind, turn, strict=True) for turn in zip_longest(*by_kind.values()))
    for kind, logged in (pair for turn in turns for pair in turn):
        if logged is None:
            continue
        if sum(map(len, (group for groups in shown.values() for group in groups))) >= most and shown[kind]:
            left_out[kind].append(logged.owner)
            continue
        read = {caption: artifacts.read(logged.run_id, path) for path, caption in logged.captions.items()}
        new = {caption: content for caption, content in read.items() if content not in seen[kind]}
        seen[kind].update(new.values())
        group = {caption: source for caption, content in new.items() if (source := data_url(content))}
        shown[kind] += [group] if group else []
        if len(group) < len(new):
            left_out[kind].append(f"{logged.owner} (too large, or no PNG)")
    return Chosen(
        shown={kind: groups for kind, groups in shown.items() if groups},
        left_out={kind: owners for kind, owners in left_out.items() if owners},
    )


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
            for path in found.tracker.artifacts.files(run.run_id):
                if path.endswith(".png"):
                    name, owner = path.removesuffix(".png"), f"{kind} {_label(run)}"
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
    by_kind: dict[tuple[str, str], dict[tuple[str, str], Logged]] = {}
    listed: dict[tuple[str, str], tuple[TrackedRun, Mapping[str, Sequence[tuple[int, str]]]]] = {}
    for arm in found.arms:
        own: set[tuple[str, str]] = set()
        newest = sorted(arm.runs.values(), key=lambda run: -run.start)
        of_runs = [(run, *one) for run in newest for one in found.stages.get(run.run_id, {}).items()]
        for run, name, stage in of_runs:
            same = identity(stage)
            if same not in listed:
                listed[same] = stage, steps_of(found.tracker.artifacts.files(stage.run_id, FOLDER))
            first, pictures = listed[same]
            for picture, steps in pictures.items():
                if (name, picture) not in own:
                    own.add((name, picture))
                    shown = dict.fromkeys((steps[0], steps[-1]) if picture in START_TOO else steps[-1:])
                    of = f"of {name}: {arm.label}, seed {value_of(run, 'seed')}"
                    captions = {path: f"{picture} at step {step} {of}" for step, path in shown}
                    logged = Logged(owner=arm.label, run_id=first.run_id, captions=captions)
                    by_kind.setdefault((name, picture), {}).setdefault(same, logged)

    def order(kind: tuple[str, str]) -> tuple[int, str, bool, str]:
        stage, name = kind
        return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage, FIRST not in name, name)

    by_name = {" ".join(kind): list(by_kind[kind].values()) for kind in sorted(by_kind, key=order)}
    return choose(found.tracker.artifacts, by_name)


def steps_of(files: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """Picture name → (step, file) of each ``figures/<name>/<step>.png``, the lowest step first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for path in files:
        name, _, step = path.removeprefix(f"{FOLDER}/").removesuffix(".png").rpartition("/")
        if path.endswith(".png") and step.isdigit():
            found.setdefault(name, []).append((int(step), path))
    return {name: sorted(steps) for name, steps in found.items()}
