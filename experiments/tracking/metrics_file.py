"""The metrics of a run folder, ``metrics.jsonl``, a number a line: ``{"step": 3, "name": …, "value": 0.5, "time": …}``

The file only grows. A process killed while writing leaves a torn last line, which readers pass over and the next writer
removes; a run resumed at step s writes the steps after s again, and readers take the last value of each (name, step).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

METRICS_FILE = "metrics.jsonl"


class Metric(NamedTuple):
    """One logged number."""

    step: int
    name: str
    value: float
    time: float
    """Seconds since the epoch."""


def format_line(metric: Metric) -> str:
    """One metric as a line. JSON knows no NaN and no infinity: they are the strings "nan", "inf" and "-inf"."""
    value = metric.value if math.isfinite(metric.value) else str(metric.value)
    return json.dumps({**metric._asdict(), "value": value}) + "\n"


def parse_line(line: bytes | str) -> Metric | None:
    """The metric on a line; None where it is torn or empty."""
    try:
        record = json.loads(line)
        return Metric(int(record["step"]), str(record["name"]), float(record["value"]), float(record["time"]))
    except (ValueError, KeyError, TypeError):
        return None


def complete_lines(folder: Path | str, *, start: int = 0) -> Iterator[tuple[Metric, int]]:
    """Each metric from byte ``start`` on, in order of writing, with the byte at which its line ends.

    A last line without its newline is still being written and is left for the next reading.
    """
    path = Path(folder) / METRICS_FILE
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        end = start
        for line in file:
            if not line.endswith(b"\n"):
                return
            end += len(line)
            metric = parse_line(line)
            if metric is not None:
                yield metric, end


def read_metrics(folder: Path | str) -> list[Metric]:
    """The last value of each (name, step), ordered by step; the empty list where nothing was logged."""
    latest: dict[tuple[str, int], Metric] = {}
    for metric, _ in complete_lines(folder):
        latest[metric.name, metric.step] = metric
    return sorted(latest.values(), key=lambda metric: metric.step)


def last_values(folder: Path | str) -> dict[str, float]:
    """Per name its value at the highest step."""
    return {metric.name: metric.value for metric in read_metrics(folder)}


def remove_torn_line(path: Path) -> None:
    """Cut what follows the last newline, so that appending starts on a line of its own."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
            os.fsync(file.fileno())
