"""The measures of the benchmark, the peers, and the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.arms import TRL

PEAK_MEMORY = "peak_memory"
PARTS = ("generation", "scoring", "update", "whole_step", PEAK_MEMORY)
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
MEASURES = (*PARTS, UPDATE_ROOFLINE, *PAIRS, "scaling", "clipo_overhead")


class Peer(NamedTuple):
    """An arm that ours is compared with."""

    name: str
    module: str
    """Module that its interpreter runs."""
    parts: tuple[str, ...]
    """The parts of a step that it supports."""
    our_update: bool = False
    """Whether its whole step is the sum of its generation and our update."""


PEERS = (
    Peer(f"TRL {TRL}", "benchmarks.peers.trl_trainer", PARTS),
    Peer("transformers generate", "benchmarks.peers.hf_generate", ("generation", "whole_step"), our_update=True),
)
VLLM = Peer("vLLM with our update", "benchmarks.ours", PARTS)
"""Our own arm with rollouts from a server, which receives the weights after each update. Runs in our environment."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One row of the table."""

    measure: str
    workload: str
    peer: str
    ratio: float
    """Median over the repeats of the peer's figure over ours; in ``clipo_overhead`` of ours over the peer's."""
    ratio_min: float
    ratio_max: float
    ours: float
    """Median over the repeats in seconds; for ``peak_memory`` in GiB."""
    theirs: float


def compare(
    measure: str, workload: str, peer: str, *, ours: Sequence[float], theirs: Sequence[float], overhead: bool = False
) -> Result:
    """Returns the peer's figure over ours, as ratios by repeat: a slow minute slows both arms of a pair.

    With ``overhead`` the ratio is ours over the peer's. Raises ValueError for no repeats or unequal numbers of repeats.
    """
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"repeats come in pairs, got {len(ours)} and {len(theirs)}")
    ratios = [mine / other if overhead else other / mine for mine, other in zip(ours, theirs, strict=True)]
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
