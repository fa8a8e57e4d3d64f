"""The lines of the table: none twice, and a part of the run gives a part of them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.measures import MEASURES, PEERS, faster, overhead, planned
from benchmarks.side_by_side import requests
from benchmarks.workloads import WORKLOADS


def test_no_line_is_there_twice() -> None:
    assert max(Counter(planned()).values()) == 1


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_has_lines(measure: str) -> None:
    lines = list(planned(measures=[measure]))
    assert lines
    assert {line.measure.split("/")[0] for line in lines} == {measure}


def test_workloads_and_measures_choose_a_part() -> None:
    parts = [set(planned(measures=[m], workloads=[w.key])) for m in ("generation", "update") for w in WORKLOADS]
    assert set.union(*parts) < set(planned())
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_step_is_asked_for_once_and_scoring_apart() -> None:
    everyone, trl = [peer.name for peer in PEERS], [PEERS[0].name]
    assert requests(MEASURES, PEERS) == {"step": everyone, "scoring": trl}
    assert requests(["update"], PEERS) == {"step": trl}
    assert requests(["scoring"], PEERS) == {"scoring": trl}
    assert requests(["generation"], PEERS[1:]) == {"step": everyone[1:]}
    assert requests(MEASURES, []) == {}


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
