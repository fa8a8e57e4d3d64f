"""What a run of the benchmark has found so far, and in a sentence each what it has not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.result import Result

Tell = Callable[[str], None]
"""Says what is being done right now."""


@dataclass(kw_only=True)
class Findings:
    """Added to by every measure."""

    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not measured, and why."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the libraries of all arms; ``threads`` is the number that ours computes with."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Workload → the tokens it had."""
