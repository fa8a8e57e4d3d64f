"""What accuracy of values went with what gain: read from a real MLflow, ordered, correlated, written down."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.evaluation import Estimate
from experiments.analysis.seeds import Difference
from experiments.study.dose_response import (
    PICTURE,
    DosedArm,
    as_section,
    correlation_sentence,
    dose_text,
    dosed,
    rank_correlation,
)
from experiments.study.plan import Study
from experiments.study.report import report
from experiments.study.results import mean_defined, read_results
from experiments.study.rows import Gain, rows_of

METRIC = "test/verifier/accuracy"
FLAT = {0: 0.2, 4: 0.2}


def arm(name: str, aurocs: Mapping[str, float], gain: float, *, seeds: int = 1) -> DosedArm:
    everywhere = Estimate(gain, gain, gain)
    over_seeds = Difference(value=gain, half=math.nan, n=1, method="paired")
    by_seed, compared = dict.fromkeys(aurocs, gain), ([*aurocs], [*aurocs])
    found = Gain(nested=everywhere, over_seeds=over_seeds, probability=everywhere, by_seed=by_seed, seeds=compared)
    return DosedArm(name=name, seeds=seeds, aurocs=aurocs, gain=found)


def arms(doses: Sequence[float], gains: Sequence[float]) -> list[DosedArm]:
    return [arm(str(n), {"0": dose}, gain) for n, (dose, gain) in enumerate(zip(doses, gains, strict=True))]


def three_arms(runs: Any) -> Study:
    """A critic of two seeds, one batch of which could not tell; an oracle of one; a baseline without values."""
    study = runs.study()
    others = {name: replace(study.arms["better"], name=name) for name in ("oracle", "lambda")}
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1, 0, seed], curve=FLAT)
    runs.add("better", 0, solved=[1, 1, 0, 1], curve=FLAT, siblings={1: 0.6, 2: math.nan, 4: 0.7})
    runs.add("better", 1, solved=[1, 1, 0, 1], curve=FLAT, siblings={1: 0.55})
    runs.add("oracle", 0, solved=[1, 0, 0, 0], curve=FLAT, siblings={1: 0.5, 2: 0.7})
    runs.add("lambda", 0, solved=[1, 1, 0, 0], curve=FLAT)
    return replace(study, arms={**study.arms, **others}, order=[["plain", "better", "oracle", "lambda"]])


def test_a_run_has_the_mean_of_the_batches_that_could_tell(runs: Any) -> None:
    study = three_arms(runs)
    plain, better, oracle, other = rows_of(read_results(runs.tracker, study, runs.marks), METRIC, start_per_seed=False)
    assert better.auroc_siblings == pytest.approx({"0": 0.65, "1": 0.55}), "the NaN at batch 2 does not count"
    assert oracle.auroc_siblings == pytest.approx({"0": 0.6})
    assert (plain.auroc_siblings, other.auroc_siblings) == ({}, {})
    assert better.gain is not None
    assert better.gain.by_seed == pytest.approx({"0": 0.75 - 0.25, "1": 0.75 - 0.5})
    assert oracle.gain is not None
    assert oracle.gain.by_seed == pytest.approx({"0": 0.0})


def test_the_picture_holds_the_arms_that_value_steps_by_dose(runs: Any) -> None:
    study = three_arms(runs)
    runs.add("oracle", 1, solved=[1, 0, 0, 0], curve=FLAT, siblings={1: 0.56})
    found = dosed(rows_of(read_results(runs.tracker, study, runs.marks), METRIC, start_per_seed=False))
    assert [(each.name, each.dose) for each in found] == [
        ("oracle", pytest.approx(0.58)),
        ("better", pytest.approx(0.6)),
    ]


def test_the_report_says_it_in_all_three_files(runs: Any, tmp_path: Path) -> None:
    report(runs.tracker, three_arms(runs), marks=runs.marks, output=tmp_path)
    folder = tmp_path / runs.name
    text = (folder / "study.md").read_text()
    assert "| better | 0.600 (0.550–0.650) | +37.5 ± " in text
    assert "| oracle | 0.600 | +0.0 |" in text, "to the seed that it has, and not to both"
    assert "| lambda | 0." not in text
    assert "No rank correlation: 2 arms, fewer than 4." in text
    assert (folder / PICTURE).read_bytes().startswith(b"\x89PNG")
    with (folder / "study.csv").open() as file:
        by_arm = {row["arm"]: row for row in csv.DictReader(file)}
    columns = ("auroc_siblings", "auroc_siblings_min", "auroc_siblings_max")
    assert [float(by_arm["better"][name]) for name in columns] == pytest.approx([0.6, 0.55, 0.65])
    assert [by_arm["plain"][name] for name in columns] == ["", "", ""]


def test_without_values_there_is_neither_picture_nor_section(runs: Any, tmp_path: Path) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 0, solved=[1, 1], curve=FLAT, siblings={1: math.nan})
    report(runs.tracker, runs.study(seeds=1), marks=runs.marks, output=tmp_path)
    assert not (tmp_path / runs.name / PICTURE).exists()
    assert "AUROC" not in (tmp_path / runs.name / "study.md").read_text()


def test_the_correlation_is_pearsons_of_ranks() -> None:
    doses, gains = [0.5, 0.5, 0.6, 0.7, 0.9], [0.02, -0.01, 0.0, 0.05, 0.04]

    def ranks(values: Sequence[float]) -> list[float]:
        """From 1, equal ones sharing the mean of theirs."""
        return [
            sum(other < value for other in values) + (1 + sum(other == value for other in values)) / 2
            for value in values
        ]

    a, b = ([rank - 3 for rank in ranks(values)] for values in (doses, gains))
    slow = sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    assert rank_correlation(arms(doses, gains)) == pytest.approx(slow, abs=1e-12)
    assert correlation_sentence(arms(doses, gains)) == f"Spearman's rank correlation over arms: {slow:+.2f} (n = 5)."


def test_only_the_order_counts() -> None:
    assert rank_correlation(arms([0.5, 0.51, 0.7, 0.99], [-0.1, 0.0, 0.01, 0.5])) == pytest.approx(1)
    assert rank_correlation(arms([0.5, 0.51, 0.7, 0.99], [0.5, 0.01, 0.0, -0.1])) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("doses", "gains", "sentence"),
    [
        ([0.6], [0.1], "No rank correlation: 1 arm, fewer than 4."),
        ([0.5, 0.6, 0.7], [0.0, 0.1, 0.2], "No rank correlation: 3 arms, fewer than 4."),
        ([0.5] * 4, [0.0, 0.1, 0.2, 0.3], "No rank correlation: 4 arms, all equal in one of the two."),
        ([0.5, 0.6, 0.7, 0.8], [0.1] * 4, "No rank correlation: 4 arms, all equal in one of the two."),
    ],
)
def test_too_little_draws_no_correlation(runs: Any, doses: list[float], gains: list[float], sentence: str) -> None:
    assert rank_correlation(arms(doses, gains)) is None
    assert correlation_sentence(arms(doses, gains)) == sentence
    assert "It says whether" not in as_section(runs.study(), arms(doses, gains))


def test_a_dose_of_fewer_seeds_than_its_gain_says_so() -> None:
    assert dose_text(arm("a", {"0": 0.61}, 0.0)) == "0.610"
    assert dose_text(arm("a", {"0": 0.61, "2": 0.65}, 0.0, seeds=3)) == "0.630 (0.610–0.650), 2 of 3 seeds"


def test_a_mean_of_nothing_is_none() -> None:
    assert mean_defined([math.nan, 0.5, 0.75, math.nan]) == 0.625
    assert mean_defined([math.nan]) is None
    assert mean_defined([]) is None
