"""What the benchmark measures, against whom, and what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.arms import TRL

PEAK_MEMORY = "peak_memory"
PARTS = ("generation", "scoring", "update", "whole_step", PEAK_MEMORY)
"""Of a GRPO step. Scoring is the pass for an old policy or a reference, which a plain step leaves out."""
UPDATE_ROOFLINE = "update_roofline"
AT_PEAK = "update_at_peak"
"""Seconds that the floating-point operations of our update would take at the rate of a large matrix product."""
PEAK = "matrix products"
"""What ``update_roofline`` is compared with."""
PAIRS = {
    "decode_roofline": ("decode", "roofline", "memory bandwidth"),
    "shared_prefix": ("shared_prefix", "own_prefix", "one prompt for each completion"),
}
"""What our arm alone measures: request → the names of our seconds and of those beside them, and what those are."""
PREFIX_WORKLOAD = "long"
"""The workload whose prompts are long enough for ``shared_prefix``."""
MEASURES = (*PARTS, UPDATE_ROOFLINE, *PAIRS, "scaling", "clipo_overhead")


class Peer(NamedTuple):
    """Whom we are compared with."""

    name: str
    module: str
    """What its environment's interpreter runs."""
    parts: tuple[str, ...]
    """Of a step, what it does at all."""
    our_update: bool = False
    """Whether a whole step is its generation and our update, added."""


PEERS = (
    Peer(f"TRL {TRL}", "benchmarks.peers.trl_trainer", PARTS),
    Peer("transformers generate", "benchmarks.peers.hf_generate", ("generation", "whole_step"), our_update=True),
)
VLLM = Peer("vLLM with our update", "benchmarks.ours", PARTS)
"""Our own arm with rollouts from a server, which gets the weights after each update. It runs in our environment."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the table."""

    measure: str
    workload: str
    peer: str
    ratio: float
    """The peer's figure over ours, the median of the repeats' ratios; in ``clipo_overhead`` ours over the peer's."""
    ratio_min: float
    ratio_max: float
    ours: float
    """The median of the repeats: seconds, of ``peak_memory`` GiB."""
    theirs: float

    @property
    def unit(self) -> str:
        return "GiB" if self.measure == PEAK_MEMORY else "s"


def compare(
    measure: str, workload: str, peer: str, *, ours: Sequence[float], theirs: Sequence[float], overhead: bool = False
) -> Result:
    """The peer's figure over ours, repeat by repeat: a slow minute slows both arms of a pair.

    With ``overhead`` it is ours over the peer's. Raises ValueError for no repeats, or not the same
    number of both.
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
    """Added to by every measure."""

    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not measured, and why."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the libraries of all arms; ``threads`` is the number that ours computes with."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Workload → the tokens it had."""
