"""A study's report from a real MLflow: which runs count, what is equal compute, and what a reader is told."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.study.plan import StudyError
from experiments.study.report import drawn, report
from experiments.study.results import ArmResult, read_results
from experiments.study.rows import rows_of

FLAT, RISING = {0: 0.2, 10: 0.2}, {0: 0.2, 5: 0.4, 10: 0.4}


def test_the_table_is_that_of_the_runs(runs: Any) -> None:
    runs.add_two_arms()
    plain, better = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert (plain.name, better.name) == ("plain", "better"), "the baseline first"
    assert (plain.success.value, better.success.value) == (0.375, 0.75)
    assert plain.gain is None
    assert better.gain is not None
    assert better.gain.nested.value == better.gain.over_seeds.value == 0.375
    assert better.gain.probability is not None
    assert (better.gain.over_seeds.method, better.gain.probability.value) == ("paired", 1.0)
    assert better.interquartile is not None
    assert better.interquartile.value == 0.5, "of the shares 1/4 (twice) and 2/4 (six times) the middle four"
    assert better.pass_at == {"4": 0.75}


def test_every_run_has_a_line_with_what_it_spent(runs: Any, tmp_path: Path) -> None:
    runs.add_two_arms()
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    with (tmp_path / runs.name / "study_runs.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["arm"], line["seed"]) for line in lines] == [(a, s) for a in ("plain", "better") for s in "01"]
    assert [line["greedy"] for line in lines] == ["0.25", "0.5", "0.75", "0.75"]
    assert [line["sampled"] for line in lines] == ["0.3125", "0.375", "0.4375", "0.4375"], "1/4, and 2/4 where solved"
    assert {(line["tokens"], line["seconds"], line["critic_seconds"]) for line in lines} == {
        ("1000.0", "20.0", "0.0"),
        ("1000.0", "20.0", "10.0"),
    }
    assert {(line["auroc_siblings"], line["git_sha"]) for line in lines} == {("", "abc")}


@pytest.mark.parametrize("unsampled", [1, 2])
def test_a_setting_without_samples_beside_one_that_has_them(runs: Any, tmp_path: Path, unsampled: int) -> None:
    """The table of all settings has the column then, with nothing in it for those of ``main``."""
    for arm in ("plain", "better"):
        runs.add(arm, 0, solved=[0, 1], curve=FLAT, unsampled=unsampled)
    results = read_results(runs.tracker, runs.study(), runs.marks)
    assert [result.sampled for arm in results for result in arm.seeds.values()] == [None, None]
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    with (tmp_path / runs.name / "study_runs.csv").open() as file:
        assert [line["sampled"] for line in csv.DictReader(file)] == ["", ""]


def test_what_was_spent_after_the_last_validation_counts(runs: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1], curve=FLAT)
        runs.add("better", seed, solved=[1, 1], curve=RISING, critic_seconds=5.0, unvalidated=1 + 2 * seed)
    said = report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    with (tmp_path / runs.name / "study_runs.csv").open() as file:
        spent = [(line["tokens"], line["seconds"]) for line in csv.DictReader(file)]
    assert spent == [("1000.0", "10.0")] * 2 + [("1100.0", "16.0"), ("1300.0", "18.0")]
    told = (
        "Tokens to the end, where success is read, beside those of plain with the same seeds, "
        "batches that teach the policy nothing among them: better"
    )
    assert f"{told} +20%." in said
    runs.add("plain", 2, solved=[0, 1], curve=FLAT, unvalidated=90)
    assert f"{told} +20%." in report(runs.tracker, runs.study(seeds=3), marks=runs.marks, output=tmp_path)


def test_the_table_is_there_for_a_paper_too(runs: Any, tmp_path: Path) -> None:
    runs.add_two_arms()
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    comment, begin, top, head, middle, *body, bottom, end = (
        (tmp_path / runs.name / "study.tex").read_text().splitlines()
    )
    assert comment.startswith("% ")
    assert begin == r"\begin{tabular}{l" + "r" * 11 + "}"
    assert (top, middle, bottom, end) == (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")
    assert head.startswith(r"arm & seeds & success & $\Delta$ to plain & ")
    assert [line.split(" & ")[0] for line in body] == ["plain", "better"]
    assert all(line.count(" & ") == 11 and line.endswith(r" \\") for line in (head, *body))
    assert r"+37.5 $\pm$ 158.8" in body[1]


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_a_curve_that_was_no_finite_number_is_shown_as_one(runs: Any, tmp_path: Path, lost: float) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1], curve=FLAT)
        runs.add("better", seed, solved=[1, 1], curve=RISING | ({5: lost, 10: lost} if seed else {}))
    said = report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    lines = (tmp_path / runs.name / "study.md").read_text().splitlines()
    better = next(line for line in lines if line.startswith("| better |"))
    shown = {math.nan: "nan (nan)", math.inf: "inf (+inf)", -math.inf: "-inf (-inf)"}[lost]
    assert f"/ {shown} of 1,000" in better
    assert not any("e+308" in line for line in (*said, better))
    assert (tmp_path / runs.name / "study_over_tokens.png").read_bytes().startswith(b"\x89PNG")


def test_at_equal_tokens_both_have_made_all_their_steps(runs: Any) -> None:
    runs.add_two_arms()
    plain, better = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert plain.tokens is not None
    assert better.tokens is not None
    assert (plain.tokens.values, plain.tokens.mean_height) == (pytest.approx([0.2, 0.2, 0.2]), pytest.approx(0.2))
    assert better.tokens.values == pytest.approx([0.3, 0.4, 0.4])
    assert better.tokens.mean_height == pytest.approx(0.35)
    assert better.tokens.gain is not None
    assert better.tokens.gain.value == pytest.approx(0.2)
    assert better.tokens.to_baseline == 0.0, "the baseline ends where it began"


def test_an_arm_that_stopped_early_shortens_no_other(runs: Any) -> None:
    runs.add_two_arms()
    study = runs.study()
    before = rows_of(read_results(runs.tracker, study, runs.marks), "test/verifier/accuracy", start_per_seed=False)
    short = replace(study.arms["better"], name="short")
    study = replace(study, arms={**study.arms, "short": short}, order=[[*study.order[0], "short"]])
    runs.add("short", 0, solved=[0, 0, 0, 0], curve={0: 0.2, 4: 0.6})
    *after, added = rows_of(
        read_results(runs.tracker, study, runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert [row.tokens for row in after] == [row.tokens for row in before]
    assert [row.tokens.cost for row in (*after, added) if row.tokens] == [1000.0, 1000.0, 400.0]
    assert added.tokens is not None
    assert added.tokens.height_gain is not None
    assert added.tokens.height_gain.value == pytest.approx(0.2), "of 0.2 to 0.6 over a baseline of 0.2, both up to 400"


def test_the_baseline_reaches_its_own_end_where_its_seeds_go_unlike_far(runs: Any) -> None:
    """The ends of the seeds are 0.2 and 0.6; their mean curve goes to 400 tokens, and is 0.3 there."""
    runs.add("plain", 0, solved=[0, 1], curve={0: 0.2, 4: 0.2})
    runs.add("plain", 1, solved=[0, 1], curve={0: 0.2, 4: 0.4, 8: 0.6})
    (plain,) = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert plain.tokens is not None
    assert plain.tokens.to_baseline == pytest.approx(400.0)


def test_at_equal_seconds_the_critics_count(runs: Any) -> None:
    """Both go to 20 s: the baseline in ten steps of 2 s, the other in 10 s and ten steps of 1 s."""
    runs.add_two_arms()
    _, better = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert better.seconds is not None
    assert better.seconds.values == pytest.approx([0.2, 0.2, 0.4])
    assert better.seconds.mean_height == pytest.approx((10 * 0.2 + 5 * 0.3 + 5 * 0.4) / 20)


@pytest.mark.parametrize("unknown", [{"critic_seconds": 10.0, "counted": False}, {"checkpoint": "a/critic"}])
def test_a_critic_whose_cost_is_unknown_is_not_free(runs: Any, tmp_path: Path, unknown: dict[str, Any]) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1, 0, seed], curve=FLAT)
    runs.add("better", 0, solved=[1, 1, 0, 1], curve=RISING, critic_seconds=10.0)
    runs.add("better", 1, solved=[1, 1, 0, 1], curve=RISING, **unknown)
    plain, better = rows_of(
        read_results(runs.tracker, runs.study(), runs.marks), "test/verifier/accuracy", start_per_seed=False
    )
    assert plain.seconds is not None
    assert (better.seconds, better.tokens is None) == (None, False)
    lines = report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    assert any("what training the critic took is not known" in line and line.endswith(": better.") for line in lines)


def test_one_run_on_a_side_is_no_probability(runs: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1], curve=FLAT)
    runs.add("better", 0, solved=[1, 1], curve=FLAT)
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    text = (tmp_path / runs.name / "study.md").read_text()
    better = next(line for line in text.splitlines() if line.startswith("| better |"))
    assert [cell.strip() for cell in better.split("|")][6] == "–"
    with (tmp_path / runs.name / "study.csv").open() as file:
        assert [row["probability"] for row in csv.DictReader(file)] == ["", ""]


def test_an_interval_of_other_seeds_is_marked(runs: Any, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        runs.add("plain", seed, solved=[0, seed % 2], curve=FLAT)
    for seed in (0, 1):
        runs.add("better", seed, solved=[1, seed], curve=RISING)
    verdict, caption, *_ = report(runs.tracker, runs.study(seeds=3), marks=runs.marks, output=tmp_path)
    assert "over seeds (Welch's). By" in verdict
    assert "or Welch's (ʷ)" in caption
    text = (tmp_path / runs.name / "study.md").read_text()
    better = next(line for line in text.splitlines() if line.startswith("| better |"))
    assert " ʷ |" in better
    assert "$^{w}$" in (tmp_path / runs.name / "study.tex").read_text()
    runs.add("better", 2, solved=[1, 1], curve=RISING)
    verdict, *_ = report(runs.tracker, runs.study(seeds=3), marks=runs.marks, output=tmp_path)
    assert "over seeds. By" in verdict
    assert not any("ʷ" in line for line in (tmp_path / runs.name / "study.md").read_text().splitlines()[:8])


def test_the_files_say_what_was_found_and_what_is_missing(runs: Any, tmp_path: Path) -> None:
    runs.add_two_arms()
    runs.add("better", 2, solved=[1, 1, 0, 1], curve=RISING, counts=[4])
    lines = report(runs.tracker, runs.study(seeds=3), marks=runs.marks, output=tmp_path)
    text = (tmp_path / runs.name / "study.md").read_text()
    assert "| better | 3 | 75.0 [" in text
    assert "/ 40.0 (+20.0 ± 0.0 ʷ) of 1,000 |" in text
    assert "of better minus that of plain, after as many batches that teach the policy: +37.5 [" in text
    for line in (
        "Seeds so far: plain 2 of 3.",
        "not tested alike: task.counts differ",
        "better: counts as one arm, but",
    ):
        assert any(line in said for said in lines), line
        assert line in text
    with (tmp_path / runs.name / "study.csv").open() as file:
        plain, better = csv.DictReader(file)
    assert (plain["arm"], plain["delta"], better["seeds"], better["delta"]) == ("plain", "", "0 1 2", "0.375")
    assert (better["tokens_1"], better["about"]) == ("0.4", "improved")


def test_without_the_baseline_there_is_nothing_to_compare(runs: Any) -> None:
    with pytest.raises(StudyError, match=f"No run of {runs.name} in MLflow"):
        read_results(runs.tracker, runs.study(), runs.marks)
    runs.add("better", 0, solved=[1], curve=RISING)
    with pytest.raises(StudyError, match="no seed of the baseline plain has finished yet"):
        read_results(runs.tracker, runs.study(), runs.marks)


def test_runs_on_other_problems_are_not_compared(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 0, solved=[0, 1], curve=FLAT, first_problem=7)
    with pytest.raises(StudyError, match="better seed 0 was tested on other problems than plain"):
        read_results(runs.tracker, runs.study(), runs.marks)


def test_a_curve_that_nobody_logged_is_answered_with_the_nearest(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    study = replace(runs.study(), curve="val/verifier/acuracy")
    with pytest.raises(StudyError, match="no run has 'val/verifier/acuracy'; did you mean 'val/verifier/accuracy'"):
        read_results(runs.tracker, study, runs.marks)


def test_a_run_without_test_problems_is_named(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT, setting="longproc")
    with pytest.raises(StudyError, match="of arm plain was tested on no problem of the setting 'main'"):
        read_results(runs.tracker, runs.study(), runs.marks)


def test_a_picture_has_no_more_lines_than_can_be_told_apart(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    (read,) = read_results(runs.tracker, runs.study(), runs.marks)
    few, seeds = read.seeds, dict.fromkeys("01234", read.seeds["0"])
    arms = [ArmResult(name="plain", seeds=few), *(ArmResult(name=f"arm{n}", seeds=few) for n in range(6))]
    arms += [ArmResult(name="most", seeds=seeds), ArmResult(name="better", seeds=few)]
    assert [arm.name for arm in drawn(arms, runs.study())] == ["plain", "arm0", "arm1", "arm2", "most", "better"]
    assert drawn(arms[:3], runs.study()) == arms[:3]
