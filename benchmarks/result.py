"""From the seconds of repeats to a ratio with its spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


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
