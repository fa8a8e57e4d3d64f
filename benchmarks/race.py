"""Arms asked in turn for the same measures, repeat by repeat."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.arm import Arm, ArmFailed
from benchmarks.findings import Tell

Seconds = dict[str, dict[str, list[float]]]
"""Arm → measure → the seconds of each repeat."""


def race(
    arms: Sequence[Arm], asked: Mapping[str, Sequence[str]], *, warm: Collection[str], repeats: int, tell: Tell
) -> Seconds:
    """Seconds of ``repeats`` counted answers to every request, after one of each that is not counted.

    A peer that ends on the way is left out of what is returned.

    Args:
        arms: the first one takes part in every request.
        asked: request → names of the other arms that take part.
        warm: requests that every arm has answered before, so that the first answer counts.
        repeats: counted ones.
        tell: told before every answer.

    Raises:
        ArmFailed: where the first arm has ended.
    """
    seconds: Seconds = defaultdict(lambda: defaultdict(list))
    lost: set[str] = set()
    for repeat in range(repeats + 1):
        for request, arm in _turns(arms, asked, lost):
            if not repeat and request in warm:
                continue
            tell(f"{f'repeat {repeat} of {repeats}' if repeat else 'warm-up'} · {request} · {arm.name}")
            try:
                answer = arm.ask(request)
            except ArmFailed:
                if arm is arms[0]:
                    raise
                lost.add(arm.name)
                continue
            for measure, value in answer.seconds.items() if repeat else ():
                seconds[arm.name][measure].append(value)
    return {name: of_arm for name, of_arm in seconds.items() if name not in lost}


def _turns(arms: Sequence[Arm], asked: Mapping[str, Sequence[str]], lost: set[str]) -> Iterator[tuple[str, Arm]]:
    """Who is asked for what in one repeat; ``lost`` may grow on the way."""
    for request, names in asked.items():
        for arm in arms:
            if arm is arms[0] or (arm.name in names and arm.name not in lost):
                yield request, arm


@contextmanager
def arms_that_close() -> Iterator[list[Arm]]:
    """Arms to be added to; all are closed at the end, whatever happens."""
    arms: list[Arm] = []
    try:
        yield arms
    finally:
        for arm in arms:
            arm.close()
