"""When a study counts as resolved, and what stands beside its primary metric."""

from __future__ import annotations

import math
from typing import Any

import pytest

from contrastive_reasoning.evaluation import Estimate
from experiments.analysis.seeds import Difference
from experiments.study.equal_cost import AtCost
from experiments.study.plan import Study, read_study
from experiments.study.rows import Gain, Row
from experiments.study.verdict import verdict

ARM: dict[str, Any] = {"about": "", "overrides": [], "seeds": 3}
CONTENT = {
    "question": "Is it better?",
    "primary": {"metric": "test/verifier/accuracy", "arm": "better", "baseline": "plain"},
    "curve": "val/verifier/accuracy",
    "common": [],
    "start": None,
    "arms": {"better": ARM, "plain": ARM},
    "order": [["better", "plain"]],
    "parallel": 1,
}
HALF = Estimate(0.5, 0.4, 0.6)


def study() -> Study:
    return read_study("s", CONTENT)


def gain(low: float, high: float, half: float, seeds: tuple[str, str] = ("012", "012")) -> Gain:
    """Of the seeds that the two texts spell."""
    middle, (ours, theirs) = (low + high) / 2, seeds
    method = "paired" if ours == theirs else "welch"
    found = Difference(value=middle, half=half, n=min(map(len, seeds)), method=method)
    nested = Estimate(middle, low, high)
    return Gain(nested=nested, over_seeds=found, probability=HALF, by_seed={}, seeds=(list(ours), list(theirs)))


def at_cost(half: float, *, seeds: int = 3) -> AtCost:
    ahead = Difference(value=0.02, half=half, n=seeds, method="paired")
    values, last = [0.1, 0.2, 0.3], {"height_gain": ahead, "to_baseline": None, "reaching": None}
    return AtCost(cost=1000.0, values=values, gain=ahead, mean_height=0.2, **last)


def row(name: str, seeds: int, found: Gain | None, tokens: AtCost | None = None) -> Row:
    return Row(
        name=name,
        seeds=[str(seed) for seed in range(seeds)],
        success=HALF,
        gain=found,
        interquartile=None,
        tokens=tokens,
        seconds=None,
        pass_at={},
        pass_gain={},
        auroc_siblings={},
        elsewhere={},
        run_ids=[],
    )


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (gain(0.01, 0.05, 0.02), "Resolved: both 95% intervals lie above zero."),
        (gain(-0.05, -0.01, 0.02), "Resolved: both 95% intervals lie below zero."),
        (gain(0.01, 0.05, 0.04), "Not resolved: a 95% interval holds zero."),
        (gain(-0.01, 0.05, 0.01), "Not resolved: a 95% interval holds zero."),
        (gain(0.01, 0.05, math.nan, ("0", "0")), "Not resolved: one seed says nothing of the spread between seeds."),
    ],
)
def test_resolved_takes_both_intervals(found: Gain, sentence: str) -> None:
    assert sentence in verdict(study(), [row("plain", 3, None), row("better", 3, found)])


def test_equal_compute_stands_beside_the_primary_metric() -> None:
    said = verdict(study(), [row("plain", 2, None), row("better", 3, gain(0.01, 0.05, 0.02), at_cost(0.005))])
    assert said == (
        "Primary: test/verifier/accuracy of better minus that of plain, after as many batches that teach the policy: "
        "+3.0 [+1.0, +5.0] points over seeds and problems, +3.0 ± 2.0 over seeds. "
        "By val/verifier/accuracy: at equal tokens (1,000) +2.0 ± 0.5; "
        "at equal seconds not known, as not all runs counted them. "
        "Resolved: both 95% intervals lie above zero. So far 2 of 3 seeds of plain."
    )


@pytest.mark.parametrize(
    ("seeds", "evidence"),
    [
        (("0", "0"), "over problems alone (one seed)."),
        (("1", "0"), "over problems alone (seed 1 against seed 0)."),
        (("012", "3"), "over problems and the seeds of one side alone (3 against 1)."),
        (("3", "012"), "over problems and the seeds of one side alone (1 against 3)."),
    ],
)
def test_the_evidence_is_of_what_was_compared(seeds: tuple[str, str], evidence: str) -> None:
    found = gain(0.01, 0.05, math.nan, seeds)
    said = verdict(study(), [row("plain", 1, None), row("better", 1, found, at_cost(math.nan, seeds=1))])
    assert f"+3.0 [+1.0, +5.0] points {evidence}" in said
    assert "at equal tokens (1,000) +2.0 (one seed);" in said
    assert "Not resolved: one seed says nothing" in said
    assert "So far 1 of 3 seeds of better and 1 of 3 seeds of plain." in said


def test_a_curve_that_is_no_number_is_not_called_one_seed() -> None:
    said = verdict(study(), [row("plain", 3, None), row("better", 3, gain(0.01, 0.05, 0.02), at_cost(math.nan))])
    assert "at equal tokens (1,000) +2.0;" in said
