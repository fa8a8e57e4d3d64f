"""Means, differences and their intervals over seeds, against values worked out by hand."""

from __future__ import annotations

import math
from statistics import mean, stdev

import pytest

from experiments.analysis.seeds import difference, over_seeds
from experiments.analysis.table import written

T_95 = {1: 12.706204736432095, 2: 4.302652729696142}
"""Student's 97.5% points by degrees of freedom, from a printed table."""


def test_a_mean_over_seeds() -> None:
    values = [0.30, 0.34, 0.41]
    estimate = over_seeds(values)
    half = T_95[2] * stdev(values) / math.sqrt(3)
    assert (estimate.value, estimate.half, estimate.n) == (mean(values), pytest.approx(half), 3)
    assert (estimate.low, estimate.high) == pytest.approx((mean(values) - half, mean(values) + half))
    assert math.isnan(over_seeds([0.3]).half)


def test_a_difference_is_paired_where_the_seeds_are_the_same() -> None:
    ours, theirs = {"0": 0.5, "1": 0.6}, {"1": 0.4, "0": 0.2}
    delta = difference(ours, theirs)
    assert (delta.method, delta.n) == ("paired", 2)
    assert delta.value == pytest.approx(0.25)
    assert delta.half == pytest.approx(T_95[1] * stdev([0.3, 0.2]) / math.sqrt(2))


def test_a_difference_is_welch_where_they_are_not() -> None:
    """By hand: s²/n = 1 and 1/3, so ν = (4/3)² / (1/2 + 1/18) = 3.2."""
    ours = {"0": 1.0 - math.sqrt(3), "1": 1.0, "2": 1.0 + math.sqrt(3)}
    theirs = {"3": -1.0, "4": 0.0, "5": 1.0}
    delta = difference(ours, theirs)
    assert (delta.method, delta.value) == ("welch", pytest.approx(1.0))
    t_of_3_2_degrees = 3.07283
    assert delta.half == pytest.approx(t_of_3_2_degrees * math.sqrt(4 / 3), rel=1e-6)


def test_a_difference_to_a_single_seed_has_no_interval() -> None:
    delta = difference({"0": 0.5, "1": 0.6}, {"7": 0.2})
    assert delta.value == pytest.approx(0.35)
    assert math.isnan(delta.half)
    assert written(delta, signed=True) == "+0.350"


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert difference({"0": 0.5, "1": 0.5}, {"2": 0.2, "3": 0.2}).half == 0.0
