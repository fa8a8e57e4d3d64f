"""The arithmetic of ratios, recomputed by hand."""

from __future__ import annotations

import pytest

from benchmarks.result import faster, overhead

OURS, THEIRS = [1.0, 2.0, 4.0], [3.0, 2.0, 6.0]


def test_faster_is_the_peers_seconds_over_ours_pair_by_pair() -> None:
    result = faster("update", "short", "TRL", ours=OURS, theirs=THEIRS)
    assert (result.ratio_min, result.ratio, result.ratio_max) == (1.0, 1.5, 3.0)
    assert (result.ours_s, result.peer_s) == (2.0, 3.0)


def test_overhead_is_the_other_way_round() -> None:
    result = overhead("clipo_overhead", "stories", "plain", ours=OURS, theirs=THEIRS)
    assert (result.ratio_min, result.ratio, result.ratio_max) == pytest.approx((1 / 3, 2 / 3, 1.0))
    assert (result.ours_s, result.peer_s) == (2.0, 3.0)


def test_a_slow_minute_hits_both_arms_of_a_pair() -> None:
    slow = faster("update", "short", "TRL", ours=[1.0, 10.0, 1.0], theirs=[2.0, 20.0, 2.0])
    assert (slow.ratio_min, slow.ratio, slow.ratio_max) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0])])
def test_repeats_come_in_pairs(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=f"got {len(theirs)} and {len(ours)}"):
        faster("update", "short", "TRL", ours=ours, theirs=theirs)
