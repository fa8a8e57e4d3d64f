"""How far long phases are, and the siblings that show it: ``Lines``, ``JSONLines`` and ``Quiet``."""

from contrastive_reasoning.progress.display import Display, Moment, Quiet
from contrastive_reasoning.progress.heartbeat import Heartbeat
from contrastive_reasoning.progress.json_lines import JSONLines
from contrastive_reasoning.progress.lines import Lines, clock
from contrastive_reasoning.progress.pace import Pace
from contrastive_reasoning.progress.phase import Phase, ShowsPhases, phase_of
from contrastive_reasoning.progress.stack_dump import StackDump
from contrastive_reasoning.progress.steps import steps_done, steps_in_all

__all__ = [
    "Display",
    "Heartbeat",
    "JSONLines",
    "Lines",
    "Moment",
    "Pace",
    "Phase",
    "Quiet",
    "ShowsPhases",
    "StackDump",
    "clock",
    "phase_of",
    "steps_done",
    "steps_in_all",
]
