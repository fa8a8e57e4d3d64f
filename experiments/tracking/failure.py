"""That a run failed, which only its own process knows: after a kill nobody is left to say so, and nothing is written.

outputs/runs/<experiment>/<time>-<seed>/failure.json    {"cause": "ValueError: …", "ended": …}
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.system.files import write_json
from experiments.system.first_line import first_line

FAILURE = "failure.json"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why and when a run ended by an exception."""

    cause: str
    ended: float
    """Seconds since the epoch."""


def write_failure(folder: Path, error: Exception) -> None:
    """Say what ended the run of this folder; of several ranks the first one does."""
    if (folder / FAILURE).exists():
        return
    failure = Failure(cause=f"{type(error).__name__}: {first_line(error)}", ended=time.time())
    with suppress(OSError):  # a full disk may be what it ended of, and is told as that
        write_json(folder / FAILURE, asdict(failure))


def read_failure(folder: Path) -> Failure | None:
    """None for a run that goes on, has finished, was stopped or was killed."""
    path = folder / FAILURE
    return Failure(**json.loads(path.read_text())) if path.exists() else None
