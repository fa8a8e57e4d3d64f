"""The interval of a cost over seeds drawn again, against means of drawn curves one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.study.cost_curve import CostCurve, mean_curve
from experiments.study.reaching import reaching


def curve(*values: float, first: float = 0.0, step: float = 10.0) -> CostCurve:
    return CostCurve(costs=[first + step * place for place in range(len(values))], values=list(values))


OURS = [curve(0.1, 0.3, 0.5, 0.7), curve(0.0, 0.1, 0.6), curve(0.2, 0.2, 0.2, 0.3, first=5.0, step=7.0)]
THEIRS = [curve(0.1, 0.2, 0.4), curve(0.1, 0.2, 0.25, 0.3), curve(0.1, 0.5, step=15.0)]


@pytest.mark.parametrize("same_seeds", [True, False])
def test_the_draws_are_those_of_mean_curves(same_seeds: bool) -> None:
    generator, costs = np.random.default_rng(3), []
    for _ in range(200):
        drawn = generator.integers(3, size=3)
        others = drawn if same_seeds else generator.integers(3, size=3)
        end = mean_curve([THEIRS[place] for place in others]).values[-1]
        cost = mean_curve([OURS[place] for place in drawn]).cost_of(end)
        costs.append(math.inf if cost is None else cost)
    found = reaching(OURS, THEIRS, same_seeds=same_seeds, resamples=200, seed=3)
    ordered = sorted(costs)
    assert (found.low, found.high) == pytest.approx((ordered[4], ordered[194]))
    assert found.never == sum(map(math.isinf, costs)) / 200
    assert 0 < found.never < 1


def test_an_arm_that_never_comes_there_has_no_end() -> None:
    found = reaching([curve(0.0, 0.1)] * 2, [curve(0.0, 0.5)] * 2, same_seeds=True, resamples=50, seed=0)
    assert (found.low, found.high, found.never) == (math.inf, math.inf, 1.0)


def test_equal_seeds_have_an_interval_of_no_width() -> None:
    found = reaching([curve(0.0, 0.5)] * 3, [curve(0.0, 0.25)] * 2, same_seeds=False, resamples=50, seed=0)
    assert (found.low, found.high, found.never) == pytest.approx((5.0, 5.0, 0.0))


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_a_seed_that_diverged_counts_where_it_is_drawn(lost: float) -> None:
    found = reaching(
        [curve(0.0, 0.5), curve(0.0, lost)], [curve(0.0, 0.25)] * 2, same_seeds=False, resamples=99, seed=0
    )
    assert found.never > 0.5
    assert (found.low, found.high) == (5.0, math.inf)


def test_sides_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="each side needs a seed, got 0 and 3"):
        reaching([], THEIRS, same_seeds=False, resamples=2, seed=0)
    with pytest.raises(ValueError, match="the same seeds were said of 2 and 3 runs"):
        reaching(OURS[:2], THEIRS, same_seeds=True, resamples=2, seed=0)
