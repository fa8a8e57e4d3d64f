"""Where arms of a study began: which starts may differ, and what a gain is measured against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.study.report import report
from experiments.study.results import read_results
from experiments.study.rows import rows_of

FLAT = {0: 0.2, 10: 0.2}


@pytest.mark.parametrize(("seed", "better_0", "alike"), [("each", "a", True), ("each", "b", False), (0, "a", False)])
def test_starts_may_differ_over_seeds_where_each_has_its_own(
    runs: Any, tmp_path: Path, seed: int | str, better_0: str, alike: bool
) -> None:
    for arm, policies in (("plain", "ab"), ("better", f"{better_0}b")):
        for number, policy in enumerate(policies):
            runs.add(arm, number, solved=[0, 1], curve=FLAT, pretrained=policy)
    study = runs.study(start={"overrides": [], "seed": seed})
    lines = report(runs.tracker, study, marks=runs.marks, output=tmp_path)
    assert ("The arms were not tested alike: policy.pretrained differ." in lines) != alike
    assert any("counts as one arm, but differs in policy.pretrained (a, b)" in line for line in lines) == (
        seed != "each"
    )
    captions = [line for line in lines if "over seeds, each seed with a warm start of its own and problems" in line]
    assert len(captions) == (seed == "each")


@pytest.mark.parametrize(
    ("seed", "delta", "method", "said"),
    [
        ("each", 0.5, "paired", "Δ of better is over seeds 0, 1, which both have: each seed has a start of its own."),
        (0, 0.5 - 1 / 3, "welch", None),
    ],
)
def test_an_arm_that_lacks_seeds_is_compared_from_its_own_starts(
    runs: Any, tmp_path: Path, seed: int | str, delta: float, method: str, said: str | None
) -> None:
    """The third seed of the baseline solves all: what the arm has not tried yet is no loss of the two that it has."""
    for number, solved in enumerate(([0, 0], [0, 0], [1, 1])):
        runs.add("plain", number, solved=solved, curve={0: 0.0, 10: 0.3 * (number == 2)})
    for number in (0, 1):
        runs.add("better", number, solved=[1, 0], curve={0: 0.0, 10: 0.4})
    study = runs.study(seeds=3, start={"overrides": [], "seed": seed})
    arms = read_results(runs.tracker, study, runs.marks)
    _, better = rows_of(arms, "test/verifier/accuracy", start_per_seed=study.start_per_seed)
    assert better.gain is not None
    assert (better.gain.nested.value, better.gain.over_seeds.value) == pytest.approx((delta, delta))
    assert better.gain.over_seeds.method == method
    assert better.tokens is not None
    assert better.tokens.gain is not None
    assert better.tokens.gain.value == pytest.approx(0.4 if said else 0.3)
    lines = report(runs.tracker, study, marks=runs.marks, output=tmp_path)
    assert [line for line in lines if line.startswith("Δ of")] == ([said] if said else [])


@pytest.mark.parametrize(("single", "several"), [("better", "plain"), ("plain", "better")])
def test_a_single_seed_of_either_side_is_compared_with_that_seed(
    runs: Any, tmp_path: Path, single: str, several: str
) -> None:
    for number, solved in enumerate(([0, 0], [1, 1])):
        runs.add(several, number, solved=solved, curve=FLAT)
    runs.add(single, 1, solved=[1, 0], curve=FLAT)
    _, better = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert better.gain is not None
    half = -0.5 if single == "better" else 0.5
    assert (better.gain.over_seeds.value, better.gain.over_seeds.method) == (half, "paired")
    assert (better.gain.seeds, better.gain.nested.value) == ((["1"], ["1"]), half)
    said = report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    assert "points over problems alone (one seed)." in said[0]
    assert "Δ of better is over seed 1, which both have: one of the two has no other." in said


def test_an_arm_of_other_starts_alone_has_no_gain(runs: Any, tmp_path: Path) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 1, solved=[1, 1], curve=FLAT)
    study = runs.study(start={"overrides": [], "seed": "each"})
    lines = report(runs.tracker, study, marks=runs.marks, output=tmp_path)
    assert "Δ of better is over no seed, as they share none: each seed has a start of its own." in lines
    assert lines[0].endswith("no seed of better has finished that grpo has too.".replace("grpo", "plain"))
