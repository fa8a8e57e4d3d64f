"""What an experiment's folder says, as the runs a tracker shows: sweep → experiment → stages. Knows no tracker.

outputs/runs/<experiment>/<time>-<seed>/
    config.yaml     the resolved configuration
    choices.json    {group: option}, the choices made in composing it                     (optional)
    origin.json     {"about": …, "overrides": […], …}: see experiments/origin.py            (optional)
    stages.json     {stage: {"folder": …, "fingerprint": …, "reused": bool}}, in order of running
    sweep.json      {"sweep": id, …}, if it is one job of a multirun                       (optional)
    summary.json    written last, when the experiment has ended
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from experiments.metrics_file import Metric, read_metrics
from experiments.parameters import flatten

Kind = Literal["sweep", "experiment", "stage", "comparison"]
HEADLINES = ("test/", "start/", "val/")


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One run of the tracker, described by files."""

    key: str
    """Its identity, ``<experiment>/<time>-<seed>[/<stage>]``: a tag by which the run is found again."""
    kind: Kind
    name: str
    parent: str | None
    folder: Path
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    finished: bool


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; the empty one where the file is absent."""
    return json.loads(path.read_text()) if path.exists() else {}


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.yaml"
    if not path.exists():
        return {}
    config = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    return {str(key): value for key, value in config.items()} if isinstance(config, dict) else {}


def find_run_folders(root: Path) -> list[Path]:
    """``root`` itself if it is an experiment's folder, else every experiment's folder under it, oldest name first."""
    return [root] if (root / "stages.json").exists() else sorted(path.parent for path in root.rglob("stages.json"))


def runs_of(folder: Path) -> list[TrackedRun]:
    """The runs that one experiment's folder stands for, parents first."""
    folder = folder.resolve()
    config, name = read_config(folder), folder.parent.name
    tags = _tags(folder, config, name)
    sweep = _sweep(folder, name)
    key = f"{name}/{folder.name}"
    experiment = TrackedRun(
        key=key,
        kind="experiment",
        name=folder.name,
        parent=sweep.key if sweep else None,
        folder=folder,
        params=flatten(config),
        tags=tags,
        finished=(folder / "summary.json").exists(),
    )
    stages = [
        TrackedRun(
            key=f"{key}/{stage}",
            kind="stage",
            name=stage,
            parent=key,
            folder=stage_folder,
            params=flatten(read_config(stage_folder)),
            tags={**tags, "stage": stage, "fingerprint": str(entry["fingerprint"]), "reused": str(entry["reused"])},
            finished=(stage_folder / "result.json").exists(),
        )
        for stage, stage_folder, entry in stage_folders(folder)
    ]
    return [*([sweep] if sweep else []), experiment, *stages]


def stage_folders(folder: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Each stage of an experiment with its folder and its entry in ``stages.json``."""
    for stage, entry in read_json(folder / "stages.json").items():
        yield stage, _located(folder, Path(entry["folder"])), entry


def headline_metrics(folder: Path) -> list[Metric]:
    """The last ``test/``, ``start/`` and ``val/`` values of all stages, by which experiments are compared; step 0."""
    last: dict[str, Metric] = {}
    for _, stage_folder, _ in stage_folders(folder):
        last |= {metric.name: metric for metric in read_metrics(stage_folder) if metric.name.startswith(HEADLINES)}
    return [metric._replace(step=0) for metric in last.values()]


def _located(folder: Path, path: Path) -> Path:
    """A stage's folder, also when outputs/ was moved or named relative to one of the folders above."""
    candidates = [above / path for above in (folder, *folder.parents)] + [Path.cwd() / path]
    return next((candidate for candidate in candidates if candidate.exists()), candidates[-1])


def _tags(folder: Path, config: Mapping[str, Any], name: str) -> dict[str, str]:
    """What runs are found and grouped by: the root values, and the option chosen in each group."""
    options = read_json(folder / "choices.json").items()
    choices = {group: str(option) for group, option in options if option is not None and "/" not in group}
    roots = {key: str(config[key]) for key in ("scale", "family", "seed", "git_sha") if key in config}
    entry = read_json(folder / "sweep.json")
    sweep = {"sweep": str(entry["sweep"])} if entry else {}
    study = {"study": name, "arm": str(config["arm"])} if config.get("arm") else {}
    return {**choices, **roots, "experiment": name, **study, **sweep}


def _sweep(folder: Path, name: str) -> TrackedRun | None:
    entry = read_json(folder / "sweep.json")
    if not entry:
        return None
    siblings = (path.parent for path in folder.parent.glob("*/sweep.json") if read_json(path) == entry)
    sweep = str(entry["sweep"])
    return TrackedRun(
        key=f"{name}/sweep-{sweep}",
        kind="sweep",
        name=f"sweep {sweep}",
        parent=None,
        folder=folder,
        params=flatten({key: value for key, value in entry.items() if key != "sweep"}) if len(entry) > 1 else {},
        tags={"experiment": name, "sweep": sweep},
        finished=all((sibling / "summary.json").exists() for sibling in siblings),
    )
