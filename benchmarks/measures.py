"""What the benchmark measures: every line of its table, before a second is counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.clipo import OVERHEAD
from benchmarks.environment import TRL
from benchmarks.workloads import BASE, DOUBLED, WORKLOADS

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
