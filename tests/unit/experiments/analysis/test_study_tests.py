"""The difference that a few pairs can detect, against numerical integration, and the sentence in a report."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from scipy import stats
from scipy.integrate import quad

from experiments.analysis.statistics import detectable_difference
from experiments.analysis.study_report import report
from experiments.analysis.study_results import read_results
from experiments.analysis.study_rows import power_sentence, rows_of


@pytest.mark.parametrize("pairs", [2, 3, 5, 10, 40])
def test_detectable_difference_has_80_percent_power(pairs: int) -> None:
    """Integrates both tails of the test over the sample variance: (n − 1)s²/σ² is χ² with n − 1 degrees of freedom."""
    freedom = pairs - 1
    noncentrality = detectable_difference(0.03, pairs) * math.sqrt(pairs) / 0.03

    def found_at(variance: float) -> float:
        bound = stats.t.ppf(0.975, freedom) * math.sqrt(variance / freedom)
        tails = stats.norm.cdf(noncentrality - bound) + stats.norm.cdf(-noncentrality - bound)
        return tails * stats.chi2.pdf(variance, freedom)

    found, _ = quad(found_at, 0, stats.chi2.ppf(1 - 1e-9, freedom), limit=200)
    assert found == pytest.approx(0.8, abs=2e-4)


def test_detectable_difference_by_number_of_pairs_and_spread() -> None:
    assert detectable_difference(3.0, 5) == pytest.approx(5.0, abs=0.05)
    assert detectable_difference(3.0, 10) == pytest.approx(3.0, abs=0.05)
    assert detectable_difference(6.0, 5) == 2 * detectable_difference(3.0, 5)
    assert math.isnan(detectable_difference(3.0, 1))


def test_report_states_detectable_difference_of_its_pairs(runs: Any, tmp_path: Path) -> None:
    """The two seeds solve 1 and 2 of four problems, and 3 and 3 with ``better``: differences 0.5 and 0.25."""
    for seed in (0, 1):
        runs.add("plain", seed, solved=[1, seed, 0, 0], curve={0: 0.2, 10: 0.2})
        runs.add("better", seed, solved=[1, 1, 1, 0], curve={0: 0.2, 10: 0.2})
    study = runs.study()
    lines = report(runs.tracker, study, runs.counted(study), output=tmp_path)
    (sentence,) = (line for line in lines if line.startswith("What it can detect"))
    spread = stdev([0.5, 0.25])
    assert sentence.startswith(f"{power_sentence(study).removesuffix('.')}; ")
    detected = 100 * detectable_difference(spread, 2)
    assert f"; 2 pairs detect {detected:.1f} points at a spread of {100 * spread:.1f} points" in sentence
    assert sentence in (tmp_path / runs.name / "study.md").read_text()


def test_power_sentence_omits_observed_spread_without_pairs(runs: Any) -> None:
    for arm, seeds in (("plain", (0, 1)), ("better", (1, 2))):
        for seed in seeds:
            runs.add(arm, seed, solved=[1, 0], curve={0: 0.2, 10: 0.2})
    study = runs.study()
    arms = {name: replace(arm, seeds=5) for name, arm in study.arms.items()}
    study = replace(study, arms=arms)
    found = rows_of(
        read_results(runs.tracker, study, runs.counted(study).runs), study.primary.metric, start_per_seed=False
    )
    gains = [row.gain for row in found if row.gain is not None]
    assert [gain.over_seeds.method for gain in gains] == ["welch"]
    assert power_sentence(study, gains[0]) == power_sentence(study)
    assert "5 pairs detect 5.0 points at a spread of 3.0 points" in power_sentence(study)
    alone = replace(study, arms={name: replace(arm, seeds=1) for name, arm in arms.items()})
    assert power_sentence(alone) == "One pair shows no spread, and so detects no difference."
