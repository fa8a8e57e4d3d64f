"""What an experiment's folder says, as the runs a tracker shows: sweep → experiment → stages. Knows no tracker.

outputs/runs/<experiment>/<time>-<seed>/
    config.yaml     the resolved configuration
    choices.json    {group: option}, the choices made in composing it                     (optional)
    origin.json     {"about": …, "overrides": […], …}: see experiments/tracking/origin.py            (optional)
    environment.json, installed.txt     what it ran on: see experiments/tracking/environment.py      (optional)
    stages.json     {stage: {"folder": …, "fingerprint": …, "reused": bool}}, in order of running
    sweep.json      {"sweep": id, …}, if it is one job of a multirun                       (optional)
                    of ``sweeps/<id>/``, where its state is: see experiments/sweep/state.py
    failure.json    why it failed, if it did: see experiments/tracking/failure.py                     (optional)
    summary.json    written last, when the experiment has finished
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from experiments.sweep.state import End, read_state
from experiments.tracking.data_sets import DataSet, data_sets_of
from experiments.tracking.failure import read_failure
from experiments.tracking.metrics_file import Metric, read_metrics
from experiments.tracking.model_files import ModelFiles, model_files
from experiments.tracking.origin import ORIGIN
from experiments.tracking.parameters import flatten

Kind = Literal["sweep", "experiment", "stage", "comparison"]
HEADLINES = ("test/", "start/", "val/")
LONGEST_NAME = 120
WATCHING = ("callbacks", "checkpoints", "logger", "progress", "output_dir")
"""Rooms that change nothing of what they watch or keep: runs from before and after an update of them are alike."""
NOT_TOLD = ("experiment", "name", "seed", "sweep", "hydra", *WATCHING)
"""Overrides that are told otherwise, or that change nothing of what comes out."""
MODEL_LIMIT = "logger.model_megabytes"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One run of the tracker, described by files."""

    key: str
    """Its identity, ``<experiment>/<time>-<seed>[/<stage>]``: a tag by which the run is found again."""
    kind: Kind
    name: str
    """For people; two runs may have the same one."""
    parent: str | None
    folder: Path
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    data_sets: Sequence[DataSet] = ()
    model: ModelFiles | None = None
    """Of a stage that has made a policy, which one that was reused has not: its run is another's."""
    end: End | None
    """As its files say; None of one that goes on or was killed."""
    ended: float | None = None
    """Seconds since the epoch, where no file of its folder tells it."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; the empty one where the file is absent."""
    return json.loads(path.read_text()) if path.exists() else {}


def read_config(folder: Path) -> Mapping[str, Any]:
    """Its ``config.yaml``, resolved; the empty one where there is none."""
    path = folder / "config.yaml"
    return _parsed(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=64)
def _parsed(path: Path, changed: int) -> Mapping[str, Any]:
    """Once for each change: it takes a tenth of a second, and a run's mirror asks every few seconds."""
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
    failure = read_failure(folder)
    experiment = TrackedRun(
        key=key,
        kind="experiment",
        name=_name(folder, tags),
        parent=sweep.key if sweep else None,
        folder=folder,
        params=flatten(config),
        tags=tags,
        end="done" if (folder / "summary.json").exists() else "failed" if failure else None,
        ended=failure.ended if failure else None,
    )
    stages = [_stage(experiment, stage, path, entry) for stage, path, entry in stage_folders(folder)]
    return [*([sweep] if sweep else []), experiment, *stages]


def _stage(experiment: TrackedRun, stage: str, folder: Path, entry: Mapping[str, Any]) -> TrackedRun:
    config, files = read_config(folder), read_json(folder / "begun.json").get("files", {})
    finished = (folder / "result.json").exists()
    limit = float(experiment.params.get(MODEL_LIMIT, 0))
    told = {"stage": stage, "fingerprint": str(entry["fingerprint"]), "reused": str(entry["reused"])}
    return TrackedRun(
        key=f"{experiment.key}/{stage}",
        kind="stage",
        name=f"{experiment.name} · {stage}",
        parent=experiment.key,
        folder=folder,
        params=flatten(config),
        tags={**experiment.tags, **told},
        data_sets=data_sets_of(stage, config, files=files, choices=experiment.tags),
        model=model_files(folder, most_megabytes=limit) if finished and not entry["reused"] else None,
        end="done" if finished else experiment.end,  # it ended in the stage that has no result
        ended=None if finished else experiment.ended,
    )


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


def sweep_folder(folder: Path, entry: Mapping[str, Any]) -> Path:
    """Where the sweep of this run is, by its ``sweep.json``: of ``hydra.sweep.dir``, which may be anywhere."""
    return _located(folder, Path(entry.get("folder", f"sweeps/{entry['sweep']}")))


def _located(folder: Path, path: Path) -> Path:
    """Such a folder, also when outputs/ was moved or named relative to one of the folders above."""
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
    method = {"method": choices.get("experiment", name)}  # of an experiment under a name of its own, too
    return {**choices, **roots, **method, "experiment": name, **study, **sweep}


def _name(folder: Path, tags: Mapping[str, str]) -> str:
    """What tells a run from others in a legend: ``llama_critic · reward.weight=0.25 · seed 0``; of an arm its name."""
    seed = [f"seed {tags['seed']}"] if "seed" in tags else []
    if "arm" in tags:
        return " · ".join([tags["arm"], *seed])
    typed = read_json(folder / ORIGIN).get("overrides", [])
    told = [override for override in typed if re.split(r"[.=/@]", override)[0] not in NOT_TOLD]
    said = " · ".join([tags["method"], *told])
    return " · ".join([said if len(said) <= LONGEST_NAME else said[: LONGEST_NAME - 1] + "…", *seed])


def _sweep(folder: Path, name: str) -> TrackedRun | None:
    entry = read_json(folder / "sweep.json")
    if not entry:
        return None
    sweep = str(entry["sweep"])
    state = read_state(sweep_folder(folder, entry))
    told = {key: value for key, value in entry.items() if key not in ("sweep", "folder")}
    return TrackedRun(
        key=f"{name}/sweep-{sweep}",
        kind="sweep",
        name=f"sweep {sweep}",
        parent=None,
        folder=folder,
        params=flatten(told) if told else {},
        tags={"experiment": name, "sweep": sweep},
        end=state.end if state else _end_of_all(folder, entry),
        ended=state.ended if state else None,
    )


def _end_of_all(folder: Path, entry: Mapping[str, Any]) -> End | None:
    """Of a sweep that nobody watched: it is done once all of its jobs are, as far as they have begun."""
    siblings = (path.parent for path in folder.parent.glob("*/sweep.json") if read_json(path) == entry)
    return "done" if all((sibling / "summary.json").exists() for sibling in siblings) else None
