"""What the benchmark measures: every line of its table, before a second is counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.arms import TRL
from benchmarks.workloads import BASE, DOUBLED, WORKLOADS


@dataclass(frozen=True, kw_only=True)
class Measure:
    """An arm against what it is compared with."""

    measure: str
    workload: str
    peer: str
    ours: Sequence[str]
    """Overrides of our arm."""
    theirs: Sequence[str]


OVERHEAD = Measure(
    measure="clipo_overhead",
    workload="arithmetic stories, one GRPO step of the laptop scale",
    peer="the same objective without the contrastive reward",
    ours=["experiment=clipo_laptop", "budget.clipo.warmup_steps=0"],
    theirs=["experiment=grpo_laptop"],
)


PARTS = ("generation", "scoring", "update", "whole_step")
"""Of a GRPO step. Scoring is the pass for an old policy or a reference, which a plain step leaves out."""
ROOFLINE = "decode_roofline"
MEASURES = (*PARTS, ROOFLINE, "shared_prefix", "scaling", "clipo_overhead")
MEMORY = "memory bandwidth"
PREFIX_WORKLOAD = "long"
OWN_PREFIX = "one prompt for each completion"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Whom we are compared with."""

    name: str
    module: str
    """What its environment's interpreter runs."""
    parts: tuple[str, ...]
    """Of a step, what it does at all."""


PEERS = (
    Peer(name=f"TRL {TRL}", module="benchmarks.peers.trl_trainer", parts=PARTS),
    Peer(name="transformers generate", module="benchmarks.peers.hf_generate", parts=("generation",)),
)


class Line(NamedTuple):
    measure: str
    workload: str
    peer: str


def planned(*, measures: Collection[str] = MEASURES, workloads: Collection[str] | None = None) -> Iterator[Line]:
    """The lines of a run of these measures and workloads (None: all), in the order of the table."""
    for workload in WORKLOADS:
        if workloads is not None and workload.key not in workloads:
            continue
        for part in PARTS:
            yield from (Line(part, workload.title, p.name) for p in PEERS if part in measures and part in p.parts)
        if ROOFLINE in measures:
            yield Line(ROOFLINE, workload.title, MEMORY)
        if workload.key == PREFIX_WORKLOAD and "shared_prefix" in measures:
            yield Line("shared_prefix", workload.title, OWN_PREFIX)
    if "scaling" in measures:
        yield from (scaling_line(doubled) for doubled in DOUBLED)
    if "clipo_overhead" in measures:
        yield Line(OVERHEAD.measure, OVERHEAD.workload, OVERHEAD.peer)


def scaling_line(doubled: str) -> Line:
    return Line(f"scaling/{doubled}", BASE.title, "ourselves, with that doubled")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the table."""

    measure: str
    workload: str
    peer: str
    ratio: float
    """The peer's seconds over ours, the median of the repeats' ratios; in ``clipo_overhead`` ours over the peer's."""
    ratio_min: float
    ratio_max: float
    ours_s: float
    """The median of the repeats."""
    peer_s: float

    @property
    def key(self) -> tuple[str, str, str]:
        return self.measure, self.workload, self.peer


def faster(measure: str, workload: str, peer: str, *, ours: Sequence[float], theirs: Sequence[float]) -> Result:
    """How many times as fast as the peer we are: its seconds over ours, repeat by repeat.

    Raises:
        ValueError: for no repeats, or not the same number of both.
    """
    return _result(measure, workload, peer, ours, theirs, ratios=_ratios(theirs, ours))


def overhead(measure: str, workload: str, peer: str, *, ours: Sequence[float], theirs: Sequence[float]) -> Result:
    """How many times the peer's seconds ours are; raises as ``faster`` does."""
    return _result(measure, workload, peer, ours, theirs, ratios=_ratios(ours, theirs))


def _ratios(of: Sequence[float], to: Sequence[float]) -> list[float]:
    """Repeat by repeat: what slows the machine for a minute slows both arms of a pair."""
    if not of or len(of) != len(to):
        raise ValueError(f"repeats come in pairs, got {len(of)} and {len(to)}")
    return [a / b for a, b in zip(of, to, strict=True)]


def _result(
    measure: str,
    workload: str,
    peer: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    ratios: Sequence[float],
) -> Result:
    return Result(
        measure=measure,
        workload=workload,
        peer=peer,
        ratio=median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        ours_s=median(ours),
        peer_s=median(theirs),
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
