"""The state of a sweep or study, in ``state.json``: whether a process runs its jobs, and how they ended."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import psutil

from experiments.run_folder.reader import read_json
from experiments.system.files import write_json

End = Literal["done", "failed", "stopped"]
GROUP_STATE = "state.json"


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """State of a group of jobs, and the process that runs it."""

    state: Literal["running"] | End = "running"
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    ended: float | None = None
    """Seconds since the epoch."""


def write_state(group: Path, state: GroupState) -> None:
    write_json(group / GROUP_STATE, asdict(state))


def read_state(group: Path) -> GroupState | None:
    """The state of a group; None if no process supervises the jobs, as when torchrun's ranks run a sweep themselves.

    A process that was killed could not write its end. On its own machine it is detected and counts as "stopped".
    """
    content = read_json(group / GROUP_STATE)
    if not content:
        return None
    state = GroupState(**content)
    killed = state.state == "running" and state.host == socket.gethostname() and not psutil.pid_exists(state.pid)
    return replace(state, state="stopped") if killed else state
