"""Exact reachability against an independent exhaustive search."""

from __future__ import annotations

from typing import Any

import pytest

from contrastive_reasoning.tasks.countdown.oracle import reachable, reachable_targets


@pytest.mark.golden_rows("oracle.jsonl")
def test_reachable(golden_row: dict[str, Any]) -> None:
    numbers, target = golden_row["nums"], golden_row["target"]
    assert reachable(numbers, target) == golden_row["reachable"]
    assert len(reachable_targets(numbers)) == golden_row["n_distinct_final_values"]
    assert (target in reachable_targets(numbers)) == golden_row["reachable"]
