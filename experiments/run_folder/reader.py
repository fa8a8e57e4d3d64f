"""Reads run folders: their JSON files, their configuration, and ``metrics.jsonl``. For the layout see the package.

``metrics.jsonl`` is append-only. A process killed while writing leaves an incomplete last line, which readers skip and
the next writer removes. A run resumed at step s writes the steps after s again; readers take the last value of each
(name, step).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

METRICS_FILE, MANIFEST, RESULT = "metrics.jsonl", "begun.json", "result.json"
ORIGIN, ENVIRONMENT, INSTALLED = "origin.json", "environment.json", "installed.txt"
STAGES, SUMMARY, FAILURE, SWEEP_FILE = "stages.json", "summary.json", "failure.json", "sweep.json"
SWEEP_VARIABLE, JOB_VARIABLE = "CONTRASTIVE_REASONING_SWEEP", "CONTRASTIVE_REASONING_JOB"
"""Variables that pass the sweep and the job's folder to a job's process and the ranks that it starts."""
JOB_RUN, SWEEP_COMMAND = "run.json", "typed.json"
"""File in a job's folder with ``{"folder": …}`` of its run; file in a sweep's folder with ``{"overrides": […]}``."""
POLICY, CRITIC = "policy", "critic"  # folders in which a stage writes what later stages need


class Metric(NamedTuple):
    """One logged number."""

    step: int
    name: str
    value: float
    time: float  # seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a run was started, and with which software."""

    about: str  # the first line of the experiment's file; empty if there is none
    overrides: list[str]  # those of the command line; for a job of a sweep, the job's own
    python: str
    packages: Mapping[str, str]  # name → version, of the main packages that are installed
    id: str = ""  # random, as runs of two output folders may begin in the same second; empty for early runs

    @classmethod
    def parse(cls, content: bytes) -> Origin:
        fields = json.loads(content)
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__ if name in fields})


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file; empty if the file does not exist."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def read_config(folder: Path) -> Mapping[str, Any]:
    """Returns the resolved ``config.yaml`` of a folder; empty if there is none."""
    path = folder / "config.yaml"
    return _parse_config(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=64)  # parsing takes a tenth of a second, and the sync process reads it every few seconds
def _parse_config(path: Path, changed: int) -> Mapping[str, Any]:
    config = OmegaConf.to_container(OmegaConf.create(path.read_text(encoding="utf-8")), resolve=True)
    return {str(key): value for key, value in config.items()} if isinstance(config, dict) else {}


def find_run_folders(root: Path) -> list[Path]:
    """Returns ``root`` itself if it is a run folder, else every run folder under it, sorted by path."""
    return [root] if (root / STAGES).exists() else sorted(path.parent for path in root.rglob(STAGES))


def stage_folders(folder: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yields each stage of a run with its folder and its entry in ``stages.json``."""
    for stage, entry in read_json(folder / STAGES).items():
        yield stage, _locate(folder, Path(entry["folder"])), entry


def sweep_folder(folder: Path) -> Path | None:
    """Returns the folder of the sweep that a run belongs to; None if it belongs to none."""
    entry = read_json(folder / SWEEP_FILE)
    return _locate(folder, Path(entry.get("folder", f"sweeps/{entry['sweep']}"))) if entry else None


def _locate(folder: Path, path: Path) -> Path:
    """Resolves ``path`` against ``folder``, its parents, then the working directory; returns the first that exists.

    So a relative ``path`` is found after outputs/ was moved. If none exists, it is relative to the working directory.
    """
    candidates = [above / path for above in (folder, *folder.parents)] + [Path.cwd() / path]
    return next((candidate for candidate in candidates if candidate.exists()), candidates[-1])


def parse_line(line: bytes | str) -> Metric | None:
    """Returns the metric on a line; None if the line is incomplete or empty."""
    try:
        record = json.loads(line)
        return Metric(int(record["step"]), str(record["name"]), float(record["value"]), float(record["time"]))
    except (ValueError, KeyError, TypeError):
        return None


def complete_lines(folder: Path, *, start: int = 0) -> Iterator[tuple[Metric, int]]:
    """Yields each metric from byte ``start`` on, in the order of writing, with the byte offset of its line's end.

    A last line without a newline is still being written and is left for the next call.
    """
    if not (path := folder / METRICS_FILE).exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        end = start
        for line in file:
            if not line.endswith(b"\n"):
                return
            end += len(line)
            if (metric := parse_line(line)) is not None:
                yield metric, end


def read_metrics(folder: Path) -> list[Metric]:
    """Returns the last value of each (name, step), sorted by step; empty if nothing was logged."""
    latest = {(metric.name, metric.step): metric for metric, _ in complete_lines(folder)}
    return sorted(latest.values(), key=lambda metric: metric.step)


def last_values(folder: Path) -> dict[str, float]:
    """Returns name → value at the highest step."""
    return {metric.name: metric.value for metric in read_metrics(folder)}


def flatten(config: Any, prefix: str = "") -> dict[str, str]:
    """Returns dotted key → text of a configuration, such as ``reward.weight`` → ``0.2``.

    A list of plain values is one text; the items of a list with mappings are numbered.
    """
    if not prefix and not config:
        return {}
    if isinstance(config, Mapping) and config:
        items = [(str(key), value) for key, value in config.items()]
    elif isinstance(config, list | tuple) and any(isinstance(item, Mapping) for item in config):
        items = [(str(index), value) for index, value in enumerate(config)]
    else:
        return {prefix: "null" if config is None else str(config).lower() if isinstance(config, bool) else str(config)}
    flat: dict[str, str] = {}
    for key, value in items:
        flat |= flatten(value, f"{prefix}.{key}" if prefix else key)
    return flat
