"""Describes a run folder as MLflow runs: sweep → experiment → stages. Only reads files; does not import MLflow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.run_folder.group_state import read_state
from experiments.run_folder.reader import (
    FAILURE,
    MANIFEST,
    ORIGIN,
    RESULT,
    SUMMARY,
    SWEEP_FILE,
    Metric,
    flatten,
    read_config,
    read_json,
    read_metrics,
    stage_folders,
    sweep_folder,
)
from experiments.system.checksums import fingerprint

Kind = Literal["sweep", "experiment", "stage"]
Status = Literal["FINISHED", "FAILED", "KILLED"]
SWEEP_STATUS: Mapping[str, Status] = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
EVALUATED = ("test/", "start/", "val/")
"""Prefixes of the metrics that evaluate a policy or a critic."""
FINAL = re.compile(r"(test|start)/(.+/)?verifier/accuracy(_sampled)?|test/average/.+|train/spent/(tokens|seconds)")
CURVES = re.compile(r"val/verifier/accuracy(_sampled)?|train/reward/.+|val/oracle/auroc_depth[12]|val/critic/loss")
"""Metrics on the page of an experiment's run. ``FINAL``: success before and after training, and its cost. ``CURVES``:
success, rewards, critic loss and AUROC over steps."""
LONGEST_NAME = 120
LONGEST_VALUE = 250
"""Most characters of a metric or parameter name, or of a parameter's value. The whole YAML is an artifact."""
OBSERVING = ("callbacks", "checkpoints", "logger", "progress", "output_dir")
"""Config groups that do not affect the result: runs that differ only in these, and not in a callback that acts on
training, count as equal."""
NOT_IN_NAMES = ("experiment", "name", "seed", "sweep", "hydra", *OBSERVING)
"""Overrides left out of a run's name: they appear there in another form, or do not affect the result."""


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """One MLflow run, described from files."""

    key: str
    """Unique tag that identifies the run: ``<experiment>/<time>-<seed>[-<id>][/<stage>]`` or
    ``<experiment>/sweep-<sweep>``."""
    kind: Kind
    name: str  # for display; not unique
    parent: str | None  # the key of the parent run
    folder: Path
    params: Mapping[str, str]
    tags: Mapping[str, str]
    model_megabytes: float | None = None
    """Largest policy (MB) that is sent; None if this run reused the stage or has not finished it."""
    status: Status | None  # None if the run is still going or was killed
    ended: float | None = None  # seconds since the epoch; None if the files' modification times give it


def describe(folder: Path) -> list[RunDescription]:
    """Returns the MLflow runs of one run folder, parents first."""
    folder = folder.resolve()
    config, experiment_name = read_config(folder), folder.parent.name
    stages = list(stage_folders(folder))
    tags = _tags(folder, config, experiment_name) | _problems(stages)
    sweep = _describe_sweep(folder, experiment_name)
    failure, drawn = read_json(folder / FAILURE), read_json(folder / ORIGIN).get("id")
    experiment = RunDescription(
        key=f"{experiment_name}/{folder.name}" + (f"-{drawn}" if drawn else ""),
        kind="experiment",
        name=_name(folder, tags),
        parent=sweep.key if sweep else None,
        folder=folder,
        params=parameters(config),
        tags=tags,
        status="FINISHED" if (folder / SUMMARY).exists() else "FAILED" if failure else None,
        ended=failure.get("ended"),
    )
    described = [_describe_stage(experiment, *stage) for stage in stages]
    return [*([sweep] if sweep else []), experiment, *described]


def run_name(folder: Path) -> str:
    """Returns the display name of a run folder's run: ``llama_critic · reward.weight=0.25 · seed 0``."""
    return _name(folder, _tags(folder, read_config(folder), folder.parent.name))


def _problems(stages: Sequence[tuple[str, Path, Mapping[str, Any]]]) -> dict[str, str]:
    """Returns the tag ``problems``: what the evaluation recorded as the problems of ``test/…`` metrics without a set.

    For gsm8k these can be generated stories.
    """
    names = [name for _, folder, _ in stages if (name := read_json(folder / RESULT).get("problems"))]
    return {"problems": names[-1]} if names else {}


def _describe_stage(experiment: RunDescription, stage: str, folder: Path, entry: Mapping[str, Any]) -> RunDescription:
    config, manifest = read_config(folder), read_json(folder / MANIFEST)
    finished = (folder / RESULT).exists()
    own_tags = {"stage": stage, "fingerprint": str(entry["fingerprint"]), "reused": str(entry["reused"])}
    if "settings" in manifest:
        own_tags["settings"] = str(manifest["settings"])
    limit = float(experiment.params.get("logger.model_megabytes", 0))
    return RunDescription(
        key=f"{experiment.key}/{stage}",
        kind="stage",
        name=f"{experiment.name} · {stage}",
        parent=experiment.key,
        folder=folder,
        params=parameters(config),
        tags={**experiment.tags, **own_tags},
        model_megabytes=limit if finished and not entry["reused"] else None,
        status="FINISHED" if finished else experiment.status,  # the experiment ended in the stage that has no result
        ended=None if finished else experiment.ended,
    )


def _describe_sweep(folder: Path, experiment_name: str) -> RunDescription | None:
    entry, sweep = read_json(folder / SWEEP_FILE), sweep_folder(folder)
    if sweep is None:
        return None
    if state := read_state(sweep):
        status = SWEEP_STATUS.get(state.state)
    else:  # no process supervises the jobs: the sweep has finished once all jobs that began have finished
        jobs = (path.parent for path in folder.parent.glob(f"*/{SWEEP_FILE}") if read_json(path) == entry)
        status = "FINISHED" if all((job / SUMMARY).exists() for job in jobs) else None
    return RunDescription(
        key=f"{experiment_name}/sweep-{entry['sweep']}",
        kind="sweep",
        name=f"sweep {entry['sweep']}",
        parent=None,
        folder=folder,
        params=parameters({key: value for key, value in entry.items() if key not in ("sweep", "folder")}),
        tags={"experiment": experiment_name, "sweep": str(entry["sweep"])},
        status=status,
        ended=state.ended if state else None,
    )


def _tags(folder: Path, config: Mapping[str, Any], experiment_name: str) -> dict[str, str]:
    """Returns the tags by which runs are filtered and grouped: root values, and the option chosen in each group."""
    options = read_json(folder / "choices.json").items()
    chosen = {group: str(option) for group, option in options if option is not None and "/" not in group}
    # the group reward@reward.source becomes the tag reward.source
    choices = {group.rpartition("@")[2]: option for group, option in chosen.items()}
    roots = {key: str(config[key]) for key in ("scale", "family", "seed", "git_sha") if key in config}
    entry = read_json(folder / SWEEP_FILE)
    sweep = {"sweep": str(entry["sweep"])} if entry else {}
    study = {"study": experiment_name, "arm": str(config["arm"])} if config.get("arm") else {}
    method = {"method": choices.get("experiment", experiment_name)}
    # in this order: experiment_name replaces the option of the group experiment, and name= may rename an experiment
    return {**choices, **roots, **method, "experiment": experiment_name, **study, **sweep}


def _name(folder: Path, tags: Mapping[str, str]) -> str:
    """Returns the display name for :func:`run_name`; in a study, the arm and seed."""
    name = tags.get("arm")
    if name is None:
        overrides = read_json(folder / ORIGIN).get("overrides", [])
        telling = [override for override in overrides if re.split(r"[.=/@]", override)[0] not in NOT_IN_NAMES]
        name = " · ".join([tags["method"], *telling])
        name = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return f"{name} · seed {tags['seed']}" if "seed" in tags else name


def headline_metrics(folder: Path) -> list[Metric]:
    """Returns the metrics of all stages by which experiments are compared: ``FINAL`` at step 0, ``CURVES`` per step."""
    last: dict[str, Metric] = {}
    curves: list[Metric] = []
    for _, stage_folder, _ in stage_folders(folder):
        metrics = list(read_metrics(stage_folder))
        last |= {metric.name: metric._replace(step=0) for metric in metrics if FINAL.fullmatch(metric.name)}
        curves += [metric for metric in metrics if CURVES.fullmatch(metric.name)]
    return [*last.values(), *curves]


def parameters(config: Any) -> dict[str, str]:
    """Flattens a configuration to MLflow's parameters; names and values have at most ``LONGEST_VALUE`` characters.

    A longer value ends with a hash of the whole, so that comparisons keep values apart that begin alike.
    """
    return {mlflow_name(key): _shortened(value) for key, value in flatten(config).items()}


def _shortened(value: str) -> str:
    if len(value) <= LONGEST_VALUE:
        return value
    mark = f"… {fingerprint({'value': value})}"
    return value[: LONGEST_VALUE - len(mark)] + mark


def mlflow_name(name: str) -> str:
    """Returns a name that MLflow accepts: letters and digits of any script, and ``_ - . : /`` and spaces.

    Other ASCII characters become ``_``. Other non-ASCII characters, such as combining marks, become their code point,
    so that names stay distinct. ``_`` is appended to path parts that are empty, ``.`` or ``..``. Names are cut to
    ``LONGEST_VALUE`` characters.
    """
    name = re.sub(r"[^\w\-. :/]", lambda sign: "_" if sign[0].isascii() else f"_{ord(sign[0]):x}_", name)
    parts = [part + "_" if part in ("", ".", "..") else part for part in name.split("/")]
    return "/".join(parts)[:LONGEST_VALUE]
