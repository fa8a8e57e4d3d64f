"""Progress for programs: one JSON object a line, on standard output."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from contrastive_reasoning.progress.display import Moment


class JSONLines:
    """Strict JSON: what is not known, or not finite, is null.

        {"stage": "grpo", "phase": null, "step": 12, "steps": 60, "unit": "steps", "seconds_gone": 40.1,
         "seconds_left": 160.4, "rate": 0.3, "train/reward/verifier": 0.31, …}

    Args:
        seconds_between_lines: how often a phase gets a line.
    """

    def __init__(self, *, seconds_between_lines: float) -> None:
        self.seconds = seconds_between_lines

    def open(self, moment: Moment) -> None: ...

    def show(self, moment: Moment) -> None:
        print(json.dumps(as_json(moment), allow_nan=False), flush=True)

    def close(self, moment: Moment) -> None: ...


def as_json(moment: Moment) -> dict[str, Any]:
    """The moment in plain values; metrics stand beside the rest, for their names have a slash."""
    return {
        "stage": moment.stage,
        "phase": moment.phase,
        "step": moment.done,
        "steps": moment.total,
        "unit": moment.unit,
        "seconds_gone": round(moment.seconds_gone, 1),
        "seconds_left": None if moment.seconds_left is None else round(moment.seconds_left, 1),
        "rate": None if moment.rate is None else float(f"{moment.rate:.4g}"),
        **{name: value if isfinite(value) else None for name, value in moment.numbers.items()},
    }
