"""What of an experiment's folder each tracker has already been sent: ``mirror.json``, kept per tracker address.

Losing the file costs time, never correctness: runs are found again by their tag, and sending a metric or a file a
second time leaves one of it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from experiments.system.files import write_json
from experiments.tracking.run_tree import read_json

MEMORY_FILE = "mirror.json"


class Found(NamedTuple):
    """A run that the tracker has already."""

    run_id: str
    deleted: bool
    """By a person."""
    status: str


@dataclass(kw_only=True)
class Sent:
    """What was sent of one run."""

    run_id: str
    described: bool = False
    """Whether its parameters and tags are there."""
    offset: int = 0
    """Bytes of its ``metrics.jsonl``."""
    files: dict[str, int] = field(default_factory=dict)
    """Path in the folder → modification time in nanoseconds."""
    model: bool = False
    """Whether the policy is there, or is known to be too large."""
    status: str = "RUNNING"


class Memory:
    """The :class:`Sent` of each run of one folder, by key, for the tracker at one address."""

    def __init__(self, folder: Path, address: str) -> None:
        self._path = folder / MEMORY_FILE
        self._address = address
        known = read_json(self._path).get(address, {})
        self.runs = {key: Sent(**entry) for key, entry in known.items()}

    def save(self) -> None:
        everything = read_json(self._path) | {self._address: {key: asdict(sent) for key, sent in self.runs.items()}}
        write_json(self._path, everything)
