"""How far long phases are, and where they hang."""

from contrastive_reasoning.progress.show import (
    Display,
    JSONLines,
    Lines,
    Pace,
    Phase,
    Quiet,
    clock,
    phase_of,
    steps_done,
    steps_in_all,
)
from contrastive_reasoning.progress.stack_dump import Heartbeat, StackDump

__all__ = [
    "Display",
    "Heartbeat",
    "JSONLines",
    "Lines",
    "Pace",
    "Phase",
    "Quiet",
    "StackDump",
    "clock",
    "phase_of",
    "steps_done",
    "steps_in_all",
]
