"""How far a sweep is, in a file of its folder: written by the process that watches it, read by who carries its runs.

outputs/sweeps/<time>/state.json    {"state": …, "host": …, "pid": …, "ended": …}
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from experiments.system.files import write_json

STATE = "state.json"
End = Literal["done", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class SweepState:
    """The sweep and its process."""

    state: Literal["running"] | End = "running"
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    ended: float | None = None
    """Seconds since the epoch."""

    @property
    def end(self) -> End | None:
        """None while it runs."""
        return None if self.state == "running" else self.state


def write_state(sweep: Path, state: SweepState) -> None:
    write_json(sweep / STATE, asdict(state))


def read_state(sweep: Path) -> SweepState | None:
    """None where nobody watched: ranks that torchrun started run the jobs of a sweep themselves.

    A sweep whose process was killed could not say so; on the machine where it ran that is seen.
    """
    path = sweep / STATE
    if not path.exists():
        return None
    state = SweepState(**json.loads(path.read_text()))
    killed = state.end is None and state.host == socket.gethostname() and not _alive(state.pid)
    return replace(state, state="stopped") if killed else state


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another person's
        return True
    return True
