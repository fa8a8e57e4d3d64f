"""The lines of the table: none twice, and a part of the run gives a part of them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.measures import MEASURES, PEERS, planned
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
