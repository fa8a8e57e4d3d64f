"""What stands beside the primary metric has intervals of its own: the area, the tokens to the baseline, pass@k."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from contrastive_reasoning.evaluation import nested_difference
from experiments.study.report import report
from experiments.study.results import read_results
from experiments.study.rows import rows_of

T_1 = 12.706204736432095
"""Student's 97.5% point, one degree of freedom."""


def two_arms(runs: Any) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1, 0, seed], curve={0: 0.2, 10: 0.3})
        runs.add("better", seed, solved=[1, 1, 0, 1], curve={0: 0.2, 10: 0.4 + 0.2 * seed})


def test_the_area_has_an_interval_over_seeds(runs: Any) -> None:
    two_arms(runs)
    plain, better = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert plain.tokens is not None
    assert plain.tokens.height_gain is None
    assert better.tokens is not None
    gain = better.tokens.height_gain
    assert gain is not None
    assert (gain.value, gain.method) == (pytest.approx(0.1), "paired"), "heights 0.3 and 0.4 over 0.25 twice"
    assert gain.half == pytest.approx(T_1 * 0.05)


def test_tokens_to_the_baseline_have_one_too(runs: Any) -> None:
    """0.3 is reached at 500 tokens by the one seed, at 250 by the other, at 1000/3 by both together."""
    two_arms(runs)
    plain, better = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert plain.tokens is not None
    assert plain.tokens.reaching is None
    assert better.tokens is not None
    assert better.tokens.reaching is not None
    assert better.tokens.to_baseline == pytest.approx(1000 / 3)
    assert (better.tokens.reaching.low, better.tokens.reaching.high) == pytest.approx((250, 500))
    assert better.tokens.reaching.never == 0.0


def test_pass_at_k_has_the_nested_bootstraps(runs: Any) -> None:
    """Of four samples one is correct, two where the problem was solved: pass@2 is 1/2 or 5/6."""
    two_arms(runs)
    arms = read_results(runs.tracker, runs.study(), runs.marks)
    few, more = 1 / 2, 5 / 6
    plain = torch.tensor([[few, more, few, few], [few, more, few, more]], dtype=torch.float64)
    better = torch.tensor([[more, more, few, more]] * 2, dtype=torch.float64)
    torch.testing.assert_close(arms[0].pass_table(2), plain)
    torch.testing.assert_close(arms[1].pass_table(2), better)
    first, second = rows_of(arms, "test/verifier/accuracy", start_per_seed=False)
    assert (first.pass_gain, list(second.pass_gain)) == ({}, ["4"])
    whole = [arm.pass_table(4) for arm in arms]
    assert second.pass_gain["4"] == nested_difference(whole[1], whole[0], same_seeds=True, resamples=2000, seed=0)


@pytest.mark.parametrize("unsampled", [0, 1])
def test_the_files_have_the_intervals(runs: Any, tmp_path: Path, capsys: Any, unsampled: int) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1], curve={0: 0.2, 10: 0.3}, unsampled=unsampled)
        runs.add("better", seed, solved=[1, 1], curve={0: 0.2, 10: 0.4 - 0.16 * seed})
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    text = (tmp_path / runs.name / "study.md").read_text()
    assert f"| 26.0 (+1.0 ± {100 * T_1 * 0.04:.1f}) |" in text
    assert "| 833 [500, not reached] (" in text
    assert "% of draws never) |" in text
    assert ("75.0 (k=4, +0.0 [+0.0, +0.0])" in text) == (not unsampled)
    assert "not reached]" in (tmp_path / runs.name / "study.tex").read_text()
    assert "not reached" not in capsys.readouterr().out, "a terminal is narrow"
    with (tmp_path / runs.name / "study.csv").open() as file:
        plain, better = csv.DictReader(file)
    assert float(better["tokens_mean_height_delta_half"]) == pytest.approx(T_1 * 0.04)
    assert (float(better["tokens_to_baseline_low"]), better["tokens_to_baseline_high"]) == (pytest.approx(500), "inf")
    assert 0 < float(better["tokens_to_baseline_never"]) < 0.5
    assert (plain["tokens_to_baseline_low"], plain["tokens_mean_height_delta_half"]) == ("", "")
    deltas = [better[f"pass_at_delta{end}"] for end in ("", "_low", "_high")]
    assert deltas == ([""] * 3 if unsampled else ["4:0.0"] * 3)
    assert better["pass_at"] == "4:0.75"
