"""The measures of the benchmark, the peers, and the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.arms import TRL

PEAK_MEMORY = "peak_memory"
SCORING = "scoring"
PARTS = ("generation", SCORING, "update", "whole_step", PEAK_MEMORY)
"""Parts of a GRPO step. Scoring is the pass of an old policy or a reference, which a plain step does not need."""
UPDATE_ROOFLINE = "update_roofline"
AT_PEAK = "update_at_peak"
"""Seconds of our update's floating-point operations at the rate of a large matrix product."""
PEAK = "matrix products"
"""Name of the peer of ``update_roofline``."""
PAIRS = {
    "decode_roofline": ("decode", "roofline", "memory bandwidth"),
    "shared_prefix": ("shared_prefix", "own_prefix", "one prompt for each completion"),
}
"""Measures of our arm alone: request → keys of our seconds and of those to compare, and a name for the latter."""
PREFIX_WORKLOAD = "long"
"""The workload whose prompts are long enough for ``shared_prefix``."""
MEASURES = (*PARTS, UPDATE_ROOFLINE, *PAIRS)


class Peer(NamedTuple):
    """An arm that ours is compared with."""

    name: str
    module: str
    """Module that its interpreter runs."""


TRL_TRAINER = Peer(f"TRL {TRL}", "benchmarks.peers.trl_trainer")
VLLM = Peer("vLLM with our update", "benchmarks.ours")
"""Our own arm with rollouts from a server, which receives the weights after each update. Runs in our environment."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One row of the table."""

    measure: str
    workload: str
    peer: str
    ratio: float
    """Median over the repeats of the peer's figure over ours."""
    ratio_min: float
    ratio_max: float
    ours: float
    """Median over the repeats in seconds; for ``peak_memory`` in GiB."""
    theirs: float


def compare(measure: str, workload: str, peer: str, *, ours: Sequence[float], theirs: Sequence[float]) -> Result:
    """Returns the peer's figure over ours, as ratios by repeat: a slow minute slows both arms of a pair.

    Raises ValueError for no repeats or unequal numbers of repeats.
    """
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"repeats come in pairs, got {len(ours)} and {len(theirs)}")
    ratios = [other / mine for mine, other in zip(ours, theirs, strict=True)]
    return Result(
        measure=measure,
        workload=workload,
        peer=peer,
        ratio=median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        ours=median(ours),
        theirs=median(theirs),
    )


@dataclass(kw_only=True)
class Findings:
    """Everything found so far; every measure adds to it."""

    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not measured and why."""
    versions: dict[str, str] = field(default_factory=dict)
    """Library → version, of all arms; also the number of ``threads`` and the ``dtype`` of our arm."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Title of a workload → its numbers of prompts, completions and tokens."""
