"""The mean over a few seeds, and the difference of two means, each with a 95% interval.

x̄ ± t₀.₉₇₅(n−1) · s/√n
paired (the same seeds on both sides):  the same formula for the differences
Welch (different seeds):                x̄ − ȳ ± t₀.₉₇₅(ν) · √(s²ₓ/n + s²ᵧ/m),   ν by Welch and Satterthwaite

For a family of paired differences: Student's p, Holm's correction, and equivalence by two one-sided tests.

Power: T = d̄ · √n / s of n pairs follows a noncentral t distribution with n − 1 degrees of freedom and noncentrality
δ√n/σ. The smallest difference δ that is found significant with probability 0.8 solves

    P(T > t₀.₉₇₅(n−1)) = 0.8      two-sided level 5%, power 80%; the other tail, which is below 10⁻⁴, is neglected
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, variance
from typing import Literal, TypeVar

from scipy.special import nctdtrinc, stdtr, stdtrit

from experiments.table import with_sign

T = TypeVar("T")
BySeed = Mapping[str, float]
POWER = 0.8
WELCH = " ʷ"
"""Marks Welch's interval in a table."""


@dataclass(frozen=True, kw_only=True)
class SeedEstimate:
    """``value ± half`` from ``n`` seeds; ``half`` is NaN for one seed, or if a value is not finite."""

    value: float
    half: float
    n: int

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    def text(self, form: str, *, factor: float = 1.0) -> str:
        """``0.412 ± 0.031``, both times ``factor``; a NaN interval is left out, a difference has a sign."""
        scaled = factor * self.value
        value = with_sign(scaled, form) if isinstance(self, Difference) else f"{scaled:z{form}}"
        return value if math.isnan(self.half) else f"{value} ± {factor * self.half:{form}}"


@dataclass(frozen=True, kw_only=True)
class Difference(SeedEstimate):
    """How much larger one mean is than another."""

    method: Literal["paired", "welch"]

    @property
    def mark(self) -> str:
        """``WELCH`` if the difference has an interval by Welch's method; else empty."""
        return WELCH if self.method == "welch" and not math.isnan(self.half) else ""

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes 0; False without an interval."""
        return self.low > 0 or self.high < 0

    def points(self) -> str:
        """A difference of shares in percentage points, with Welch's mark: ``+2.0 ± 1.1 ʷ``."""
        return self.text(".1f", factor=100) + self.mark


SHARES = ("accuracy", "pass_at", "auroc", "auprc", "extraction_rate")
"""A metric is a share if the last part of its name contains one of these."""
Rule = Callable[[BySeed, BySeed], Difference | None]
"""Returns the difference of an arm's values to its baseline's; None if no seeds can be compared."""


def is_share(metric: str) -> bool:
    """Whether a metric is a share, which is written in percent."""
    return any(share in metric.rpartition("/")[2] for share in SHARES)


def over_seeds(values: Sequence[float], *, level: float = 0.95) -> SeedEstimate:
    """The mean with Student's interval; not finite if any value is not, so that a diverged seed is not hidden."""
    half = _half(_squared_error(values), len(values) - 1, level=level)
    return SeedEstimate(value=mean(values), half=half, n=len(values))


def paired_p(differences: Sequence[float]) -> float:
    """The two-sided p of Student's test that the mean of paired differences is 0.

    NaN for one pair, or if a difference is not finite.
    """
    squared_error = _squared_error(differences)
    if math.isnan(squared_error):
        return math.nan
    if squared_error == 0:
        return float(differences[0] == 0)
    return 2 * float(stdtr(len(differences) - 1, -abs(mean(differences)) / math.sqrt(squared_error)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each test of a family of m (Scand. J. Statist. 6, 1979), in the given order.

        p̃₍ᵢ₎ = max over j ≤ i of min(1, (m − j + 1) · p₍ⱼ₎),   p₍₁₎ ≤ … ≤ p₍ₘ₎

    A test without a p (NaN) still counts among the m, as if its p were 1; its adjusted p is NaN.
    """
    known = [1.0 if math.isnan(p) else p for p in p_values]
    adjusted, least = [math.nan] * len(known), 0.0
    for place, test in enumerate(sorted(range(len(known)), key=known.__getitem__)):
        least = max(least, min(1.0, (len(known) - place) * known[test]))
        adjusted[test] = math.nan if math.isnan(p_values[test]) else least
    return adjusted


def equivalence(differences: Sequence[float], *, margin: float) -> tuple[SeedEstimate, bool]:
    """The mean of paired differences with its 90% interval, and whether the interval lies within ±``margin``.

    This is the same as two one-sided t-tests at 5% each (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987).
    """
    found = over_seeds(differences, level=0.90)
    return found, -margin < found.low and found.high < margin


def detectable_difference(spread: float, pairs: int) -> float:
    """The mean difference that ``pairs`` pairs detect, in the unit of ``spread``, the standard deviation over pairs.

    NaN for a single pair, which has no spread.
    """
    if pairs < 2:
        return math.nan
    noncentrality = nctdtrinc(pairs - 1, 1 - POWER, stdtrit(pairs - 1, 0.975))
    return float(noncentrality) * spread / math.sqrt(pairs)


def difference(values: BySeed, baseline: BySeed) -> Difference:
    """The mean of ``values`` minus that of ``baseline``: paired if both have the same seeds, else Welch's."""
    if set(values) == set(baseline):
        paired = over_seeds([value - baseline[seed] for seed, value in values.items()])
        return Difference(value=paired.value, half=paired.half, n=paired.n, method="paired")
    ours, theirs = list(values.values()), list(baseline.values())
    a, b = _squared_error(ours), _squared_error(theirs)
    freedom = math.nan
    if a + b > 0:  # False also for NaN
        freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = 0.0 if a + b == 0 else _half(a + b, freedom)
    return Difference(value=mean(ours) - mean(theirs), half=half, n=min(len(ours), len(theirs)), method="welch")


def difference_over_shared_seeds(values: BySeed, baseline: BySeed) -> Difference:
    """The difference over the seeds that both have, since a seed decides the policy that training begins from.

    If both have several seeds and share only one, or if they share none, all seeds of both count.
    """
    ours, theirs = shared_seeds(values, baseline)
    enough = len(ours) >= min(2, len(values), len(baseline))
    return difference(ours, theirs) if enough else difference(values, baseline)


def difference_in_a_study(values: BySeed, baseline: BySeed, *, start_per_seed: bool) -> Difference | None:
    """The difference over the seeds that :func:`seeds_to_compare` chooses; None if there are none."""
    ours, theirs = seeds_to_compare(values, baseline, start_per_seed=start_per_seed)
    return difference(ours, theirs) if ours else None


def shared_seeds(values: Mapping[str, T], baseline: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Both sides restricted to the seeds that both have, in the same order."""
    seeds = [seed for seed in values if seed in baseline]
    return {seed: values[seed] for seed in seeds}, {seed: baseline[seed] for seed in seeds}


def seeds_to_compare(
    values: Mapping[str, T], baseline: Mapping[str, T], *, start_per_seed: bool
) -> tuple[Mapping[str, T], Mapping[str, T]]:
    """The values of a study's arm and of its baseline that are compared, both by seed.

    If each seed begins from its own policy (``start_per_seed``), these are the seeds that both have, perhaps none. With
    a common start all seeds of both are compared. If a side has a single seed that the other has too, only that seed
    is compared.
    """
    single = 1 in (len(values), len(baseline)) and bool(set(values) & set(baseline))
    return shared_seeds(values, baseline) if start_per_seed or single else (values, baseline)


def _squared_error(values: Sequence[float]) -> float:
    """s²/n, the variance of the mean; NaN for one value, or if any value is not finite."""
    known = len(values) > 1 and all(map(math.isfinite, values))  # else variance raises, or is infinite
    return variance(values) / len(values) if known else math.nan


def _half(squared_error: float, freedom: float, *, level: float = 0.95) -> float:
    # freedom is NaN without an interval, and NaN > 0 is False
    return float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(squared_error) if freedom > 0 else math.nan
