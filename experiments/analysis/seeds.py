"""What a few seeds say of a number: its mean, and the difference of two means, each with a 95% interval.

x̄ ± t₀.₉₇₅(n−1) · s/√n
paired (the same seeds on both sides):  the same of the differences
Welch (other seeds):                    x̄ − ȳ ± t₀.₉₇₅(ν) · √(s²ₓ/n + s²ᵧ/m),   ν by Welch and Satterthwaite
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, variance
from typing import Literal, TypeVar

from scipy.special import stdtrit

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """``value ± half`` from ``n`` seeds; ``half`` is nan where one seed leaves it open, or one is no finite number."""

    value: float
    half: float
    n: int

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


@dataclass(frozen=True, kw_only=True)
class Difference(Estimate):
    """How much larger one mean is than another."""

    method: Literal["paired", "welch"]


Rule = Callable[[Mapping[str, float], Mapping[str, float]], Difference | None]
"""Of an arm's values and those that they are compared with, both by seed; None where no seeds can be compared."""


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean with Student's interval."""
    if not values:
        raise ValueError("a mean over seeds needs at least one value")
    return Estimate(value=_mean(values), half=_half(_squared_error(values), len(values) - 1), n=len(values))


def difference(values: Mapping[str, float], baseline: Mapping[str, float]) -> Difference:
    """``values`` minus ``baseline``, both by seed: paired where the seeds are the same ones, else Welch's."""
    if set(values) == set(baseline):
        paired = over_seeds([value - baseline[seed] for seed, value in values.items()])
        return Difference(value=paired.value, half=paired.half, n=paired.n, method="paired")
    ours, theirs = list(values.values()), list(baseline.values())
    a, b = _squared_error(ours), _squared_error(theirs)
    freedom = math.nan
    if a + b > 0:
        freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = 0.0 if a + b == 0 else _half(a + b, freedom)
    return Difference(value=_mean(ours) - _mean(theirs), half=half, n=min(len(ours), len(theirs)), method="welch")


def over_shared(values: Mapping[str, float], baseline: Mapping[str, float]) -> Difference:
    """Over the seeds that both have, since a seed decides the policy that training begins from.

    A single one of several is too few to leave the others out for.
    """
    ours, theirs = shared(values, baseline)
    enough = len(ours) >= min(2, len(values), len(baseline))
    return difference(ours, theirs) if enough else difference(values, baseline)


def in_a_study(
    values: Mapping[str, float], baseline: Mapping[str, float], *, start_per_seed: bool
) -> Difference | None:
    """Over what :func:`compared` says; None where that is nothing."""
    ours, theirs = compared(values, baseline, start_per_seed=start_per_seed)
    return difference(ours, theirs) if ours else None


def shared(values: Mapping[str, T], baseline: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Both in the seeds that both have, in one order: where each seed has a start of its own, others compare starts."""
    seeds = [seed for seed in values if seed in baseline]
    return {seed: values[seed] for seed in seeds}, {seed: baseline[seed] for seed in seeds}


def compared(
    values: Mapping[str, T], baseline: Mapping[str, T], *, start_per_seed: bool
) -> tuple[Mapping[str, T], Mapping[str, T]]:
    """What of an arm of a study stands against what of its baseline, both by seed; nothing where starts share no seed.

    Where each seed begins from a policy of its own, the seeds that both have. From one start all seeds of both, but a
    single one of either side stands against the other side's run of that seed.
    """
    alone = 1 in (len(values), len(baseline)) and bool(set(values) & set(baseline))
    return shared(values, baseline) if start_per_seed or alone else (values, baseline)


def _mean(values: Sequence[float]) -> float:
    """Not finite where one of them is not: a seed that diverged counts like the others."""
    return mean(values) if all(map(math.isfinite, values)) else sum(values)


def _squared_error(values: Sequence[float]) -> float:
    """s²/n, the variance of the mean; nan for one value, or where one is not finite."""
    known = len(values) > 1 and all(map(math.isfinite, values))
    return variance(values) / len(values) if known else math.nan


def _half(squared_error: float, freedom: float) -> float:
    return float(stdtrit(freedom, 0.975)) * math.sqrt(squared_error) if freedom > 0 else math.nan
