"""A study's report from a real MLflow: which runs count, comparison at equal cost, and notes."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.special import stdtr

from contrastive_reasoning.evaluation import Estimate, nested_difference
from experiments.analysis.statistics import Difference
from experiments.analysis.study_report import notes_on, report
from experiments.analysis.study_results import mean_defined, read_results
from experiments.analysis.study_rows import ArmRow, rows_of, verdict
from experiments.analysis.study_table import equivalence_table, family_table, runs_as_csv
from experiments.jobs.finished import Today, counted_runs
from experiments.jobs.study_plan import Study, StudyError, read_study

METRIC = "test/verifier/accuracy"
FLAT, RISING = {0: 0.2, 10: 0.2}, {0: 0.2, 5: 0.4, 10: 0.4}
EACH: Mapping[str, Any] = {"overrides": [], "seed": "each"}


def rows(runs: Any, study: Any = None) -> list[ArmRow]:
    study = study or runs.study()
    found = read_results(runs.tracker, study, runs.counted(study).runs)
    return rows_of(found, METRIC, start_per_seed=study.start_per_seed)


def report_lines(runs: Any, folder: Path, study: Any = None) -> list[str]:
    study = study or runs.study()
    return report(runs.tracker, study, runs.counted(study), output=folder)


def notes(runs: Any, study: Any = None) -> list[str]:
    """Returns the notes without the report's table and pictures."""
    study = study or runs.study()
    arms = read_results(runs.tracker, study, runs.counted(study).runs)
    return notes_on(study, arms, runs.counted(study))


def records(runs: Any, folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / runs.name / name).open() as file:
        return list(csv.DictReader(file))


def test_rows_of_returns_results_of_the_runs(runs: Any) -> None:
    runs.add_two_arms()
    plain, better = rows(runs)
    assert (plain.name, better.name) == ("plain", "better"), "the baseline first"
    assert (plain.success.value, better.success.value, plain.gain) == (0.375, 0.75, None)
    assert better.gain.nested.value == better.gain.over_seeds.value == 0.375
    assert (better.gain.over_seeds.method, better.gain.probability.value) == ("paired", 1.0)
    assert better.interquartile.value == 0.5, "of the shares 1/4 (twice) and 2/4 (six times) the middle four"
    assert better.pass_at == {"4": 0.75}
    assert (plain.tokens.values, plain.tokens.mean_height) == (pytest.approx([0.2, 0.2, 0.2]), pytest.approx(0.2))
    assert (better.tokens.values, better.tokens.mean_height) == (pytest.approx([0.3, 0.4, 0.4]), pytest.approx(0.35))
    assert (better.tokens.gain.value, better.tokens.to_baseline) == (pytest.approx(0.2), 0.0)
    assert better.seconds.values == pytest.approx([0.2, 0.2, 0.4]), "10 s of the critic's, then ten steps of 1 s"
    assert better.seconds.mean_height == pytest.approx((10 * 0.2 + 5 * 0.3 + 5 * 0.4) / 20)


def test_arm_that_stopped_early_does_not_shorten_other_arms(runs: Any) -> None:
    runs.add_two_arms()
    study = runs.study()
    before = rows(runs, study)
    arms = {**study.arms, "short": study.arms["better"]}
    study = replace(study, arms=arms, order=[[*study.order[0], "short"]])
    runs.add("short", 0, solved=[0, 0, 0, 0], curve={0: 0.2, 4: 0.6})
    *after, added = rows(runs, study)
    assert [row.tokens for row in after] == [row.tokens for row in before]
    assert added.tokens.cost == 400.0
    assert added.tokens.height_gain.value == pytest.approx(0.2), "of 0.2 to 0.6 over a baseline of 0.2, both up to 400"


def test_area_time_to_target_and_pass_at_k_have_intervals(runs: Any) -> None:
    """One seed reaches 0.3 at 500 tokens, the other at 250, and their mean at 1000/3."""
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1, 0, seed], curve={0: 0.2, 10: 0.3})
        runs.add("better", seed, solved=[1, 1, 0, 1], curve={0: 0.2, 10: 0.4 + 0.2 * seed})
    arms = read_results(runs.tracker, runs.study(), runs.counted().runs)
    plain, better = rows_of(arms, METRIC, start_per_seed=False)
    assert (plain.tokens.height_gain, plain.tokens.time_to_target, plain.pass_gain) == (None, None, {})
    assert better.tokens.height_gain.value == pytest.approx(0.1), "heights 0.3 and 0.4 over 0.25 twice"
    assert better.tokens.height_gain.half == pytest.approx(12.706204736432095 * 0.05), "Student's, ν = 1"
    interval = better.tokens.time_to_target
    assert (better.tokens.to_baseline, interval.low, interval.high) == pytest.approx((1000 / 3, 250, 500))
    few, more = 1 / 2, 5 / 6  # one of four samples is correct, two if the problem was solved
    assert arms[0].pass_at(2).tolist() == [pytest.approx([few, more, few, few]), pytest.approx([few, more, few, more])]
    whole = [arm.pass_at(4) for arm in arms]
    assert better.pass_gain["4"] == nested_difference(whole[1], whole[0], same_seeds=True, resamples=2000, seed=0)


def test_report_files_contain_only_recorded_values(runs: Any, tmp_path: Path) -> None:
    """Covers costs after the last validation, a curve with non-finite values, and problems without samples."""
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1], curve=FLAT, unsampled=1)
        diverged = RISING | ({5: math.inf, 10: math.inf} if seed else {})
        costs = {"critic_seconds": 5.0, "unvalidated": 1 + 2 * seed}
        runs.add("better", seed, solved=[1, 1], curve=diverged, siblings={1: math.nan}, **costs)
    lines = report_lines(runs, tmp_path)
    found = records(runs, tmp_path, "study_runs.csv")
    assert [(line["arm"], line["seed"]) for line in found] == [(arm, s) for arm in ("plain", "better") for s in "01"]
    costs = [(line["tokens"], line["seconds"], line["critic_seconds"]) for line in found]
    assert costs == [("1000.0", "10.0", "0.0")] * 2 + [("1100.0", "16.0", "5.0"), ("1300.0", "18.0", "5.0")]
    assert {line["pass_at_4"] for line in found} == {"0.75"}
    curves = records(runs, tmp_path, "study_curves.csv")
    assert [line["step"] for line in curves] == ["0", "10"] * 2 + ["0", "5", "10"] * 2
    of_run = {"arm": "better", "seed": "0", "greedy": str(RISING[5]), "sampled": ""}
    after_critic = {"step": "5", "tokens": "500.0", "seconds": "10.0"}
    assert curves[5] == {**of_run, **after_critic}, "five steps after the five seconds of the critic"
    assert curves[-1]["greedy"] == "inf"
    assert any(line.startswith("Tokens to the end") and line.endswith(": better +20%.") for line in lines)
    assert [line["sampled"] for line in found] == ["", "", "0.5", "0.5"]
    text = (tmp_path / runs.name / "study.md").read_text()
    assert "/ inf (+inf) of 1,000" in text
    assert "e+308" not in text
    assert "##" not in text, "no values of steps, no other settings"


@pytest.mark.parametrize(
    ("critic", "is_known"),
    [
        ({"critic_seconds": 10.0, "counted": False}, False),
        ({"checkpoint": "a/critic"}, False),
        ({"checkpoint": "fresh"}, True),  # it is trained during GRPO alone
    ],
)
def test_unknown_critic_cost_excludes_comparison_at_equal_seconds(
    runs: Any, critic: dict[str, Any], is_known: bool
) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1, 0, seed], curve=FLAT)
    runs.add("better", 0, solved=[1, 1, 0, 1], curve=RISING, critic_seconds=10.0)
    runs.add("better", 1, solved=[1, 1, 0, 1], curve=RISING, **critic)
    plain, better = rows(runs)
    known = [row is not None for row in (plain.seconds, better.seconds, better.tokens)]
    assert known == [True, is_known, True]
    line = "what training the critic took is not known"
    assert any(line in note and note.endswith(": better.") for note in notes(runs)) != is_known


@pytest.mark.parametrize(("seed", "better_0", "alike"), [("each", "a", True), ("each", "b", False), (0, "a", False)])
def test_policies_may_differ_over_seeds_only_with_start_per_seed(
    runs: Any, seed: int | str, better_0: str, alike: bool
) -> None:
    for arm, policies in (("plain", "ab"), ("better", f"{better_0}b")):
        for number, policy in enumerate(policies):
            runs.add(arm, number, solved=[0, 1], curve=FLAT, pretrained=policy)
    lines = notes(runs, runs.study(start={"overrides": [], "seed": seed}))
    assert ("The arms were not tested alike: policy.pretrained differ." in lines) != alike
    mixed = any("counts as one arm, but differs in policy.pretrained (a, b)" in line for line in lines)
    assert mixed == (seed != "each")


@pytest.mark.parametrize(
    ("seed", "delta", "method", "note"),
    [
        ("each", 0.5, "paired", "Δ of better is over seeds 0, 1, which both have: each seed has a start of its own."),
        (0, 0.5 - 1 / 3, "welch", None),
    ],
)
def test_incomplete_arm_is_compared_over_shared_seeds_with_start_per_seed(
    runs: Any, seed: int | str, delta: float, method: str, note: str | None
) -> None:
    """The baseline's third seed, which the arm lacks, solves all. With a start per seed it does not lower the gain."""
    for number, solved in enumerate(([0, 0], [0, 0], [1, 1])):
        runs.add("plain", number, solved=solved, curve={0: 0.0, 10: 0.3 * (number == 2)})
    for number in (0, 1):
        runs.add("better", number, solved=[1, 0], curve={0: 0.0, 10: 0.4})
    study = runs.study(seeds=3, start={"overrides": [], "seed": seed})
    _, better = rows(runs, study)
    assert (better.gain.nested.value, better.gain.over_seeds.value) == pytest.approx((delta, delta))
    assert better.gain.over_seeds.method == method
    assert better.tokens.gain.value == pytest.approx(0.4 if note else 0.3)
    lines = notes(runs, study)
    assert [line for line in lines if line.startswith("Δ of")] == ([note] if note else [])
    assert "Seeds so far: better 2 of 3." in lines


def test_arm_without_shared_start_has_no_gain(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 1, solved=[1, 1], curve=FLAT)
    study = runs.study(start=EACH)
    line = "Δ of better is over no seed, as they share none: each seed has a start of its own."
    assert line in notes(runs, study)
    assert verdict(study, rows(runs, study)).endswith("no seed of better has finished that plain has too.")


def test_newer_run_of_another_configuration_does_not_count(runs: Any) -> None:
    runs.add_two_arms()
    later = {"curve": RISING, "time": "2026-01-02T00-00-00", "configuration": "another"}
    for arm, seed in (("better", 1), ("better", 0), ("plain", 1), ("gone", 0), ("better", 2), ("better", 3)):
        runs.add(arm, seed, solved=[0, 0, 0, 0], **later)
    runs.add("better", 4, solved=[1, 1, 1, 1], curve=RISING, finished=False)
    plain, better = read_results(runs.tracker, runs.study(), runs.counted().runs)
    assert [list(result.greedy) for result in better.seeds.values()] == [[1, 1, 0, 1]] * 2
    assert [list(result.greedy) for result in plain.seeds.values()] == [[0, 1, 0, 0], [0, 1, 0, 1]]
    lines = notes(runs)
    assert "4 runs of another configuration left out: better 0, 1; plain 1; gone 0." in lines
    assert "2 runs beyond the seeds that the study asks for left out: better 2, 3." in lines


def test_read_results_raises_if_runs_cannot_be_compared(runs: Any) -> None:
    study = runs.study()
    with pytest.raises(StudyError, match=runs.name):
        read_results(runs.tracker, study, runs.counted(study).runs)
    runs.add("better", 0, solved=[0, 1], curve=FLAT, first_problem=7)
    with pytest.raises(StudyError, match="baseline plain"):
        read_results(runs.tracker, study, runs.counted(study).runs)
    with pytest.raises(StudyError, match="1 runs"):
        counted_runs(runs.tracker, study, Today(set(), {}))
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    with pytest.raises(StudyError, match=r"better seed 0 .* problems"):
        read_results(runs.tracker, study, runs.counted(study).runs)
    with pytest.raises(StudyError, match=r"'val/verifier/acuracy'.*'val/verifier/accuracy'"):
        read_results(runs.tracker, replace(study, curve="val/verifier/acuracy"), runs.counted().runs)
    runs.add("plain", 1, solved=[0, 1], curve=FLAT, setting="longproc")
    with pytest.raises(StudyError, match=r"arm plain .*'main'"):
        read_results(runs.tracker, study, runs.counted(study).runs)


@pytest.mark.parametrize(
    ("plain", "better", "note"),
    [
        ({"threads": 1}, {"threads": 1}, None),
        ({"threads": 1}, {}, "The arms were not tested alike: threads differ."),
        ({"counts": [3]}, {"counts": [4]}, "The arms were not tested alike: task.counts differ."),
        ({"further": {"rollout": {"workers": 1}}}, {"further": {"rollout": {"workers": 2}}}, None),
        ({}, {"git_sha": "def-dirty"}, "Made by different code: [abc] plain 0; [def-dirty] better 0."),
        (
            {"git_sha": "new", "made_by": {"git_sha": "old", "processor": "P 1"}},
            {"git_sha": "new", "made_by": {"git_sha": "new", "processor": "P 1"}},
            "Made by different code: [old] plain 0; [new] better 0.",
        ),
        (
            {"made_by": {"processor": "P 1"}},
            {"made_by": {"processor": "P 2"}},
            "The arms were not tested alike: processor differ.",
        ),
    ],
)
def test_notes_name_differences_in_code_and_test_bed(
    runs: Any, plain: dict[str, Any], better: dict[str, Any], note: str | None
) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT, **plain)
    runs.add("better", 0, solved=[0, 1], curve=FLAT, **better)
    found = [line for line in notes(runs, runs.study(seeds=1)) if "not tested alike" in line or "Made by" in line]
    assert found == ([] if note is None else [note])


def test_mean_defined_averages_finite_values() -> None:
    assert mean_defined([0.6, math.nan, 0.7]) == pytest.approx(0.65)
    assert mean_defined([math.nan, math.inf]) is None


VERDICTS: list[tuple[float, float, float, tuple[str, str], str]] = [
    (0.01, 0.05, 0.02, ("012", "012"), "Significant: both 95% intervals lie above zero."),
    (-0.05, -0.01, 0.02, ("012", "012"), "Significant: both 95% intervals lie below zero."),
    (0.01, 0.05, 0.04, ("012", "012"), "Not significant: a 95% interval contains zero."),
    (-0.01, 0.05, 0.01, ("012", "012"), "Not significant: a 95% interval contains zero."),
    (0.01, 0.05, math.nan, ("1", "0"), "points over problems alone (seed 1 against seed 0)."),
    (0.01, 0.05, math.nan, ("012", "3"), "over problems and the seeds of one side alone (3 against 1)."),
    (0.01, 0.05, math.nan, ("0", "0"), "Not significant: one seed does not show the spread between seeds."),
]
"""Ends of the nested interval, half of the interval over seeds, the seeds of both, and the expected sentence."""


def test_verdict_is_significant_only_if_both_intervals_exclude_zero(runs: Any) -> None:
    runs.add_two_arms()
    study = runs.study(seeds=3)
    plain, better = rows(runs, study)
    for low, high, half, seeds, sentence in VERDICTS:
        method = "paired" if seeds[0] == seeds[1] else "welch"
        over_seeds = Difference(value=(low + high) / 2, half=half, n=min(map(len, seeds)), method=method)
        nested = Estimate((low + high) / 2, low, high)
        gain = replace(better.gain, nested=nested, over_seeds=over_seeds, seeds=tuple(map(list, seeds)))
        found = verdict(study, [plain, replace(better, gain=gain, tokens=None, seconds=None)])
        assert sentence in found
        assert "at equal tokens not known, as not all runs counted them; at equal seconds not known" in found
        assert found.endswith("So far 2 of 3 seeds of better and 2 of 3 seeds of plain.")


def of_auc(runs: Any, *, seeds: int = 3, **further: Any) -> Study:
    primary = {"metric": "auc", "arm": "better", "baseline": "plain"}
    return read_study(runs.name, {**runs.content(seeds=seeds, start=EACH), "primary": primary, **further})


def test_verdict_on_auc_counts_the_seeds_of_both_arms(runs: Any) -> None:
    for seed in range(3):
        if seed < 2:
            runs.add("plain", seed, solved=[0, 1, 0, 0], curve={0: 0.0, 5: 0.1 + seed / 10})
        runs.add("better", seed, solved=[1, 1, 0, 0], curve={0: 0.0, 5: 0.5 + seed / 10})
    primary = {"metric": "auc", "arm": "better", "baseline": "plain"}
    study = read_study(runs.name, {**runs.content(seeds=3, start=None), "primary": primary})
    found = verdict(
        study, rows_of(read_results(runs.tracker, study, runs.counted(study).runs), "auc", start_per_seed=False)
    )
    assert "points over 3 against 2 seeds (Welch's)." in found


def test_auc_is_mean_of_validations_after_step_0(runs: Any, tmp_path: Path) -> None:
    """Paired differences 0.2, 0.3 and 0.4 of the means of two validations; the last validations differ by 0 alone."""
    for seed, plus in enumerate((0.2, 0.3, 0.4)):
        runs.add("plain", seed, solved=[0, 1, 0, 0], curve={0: 0.9, 5: 0.1, 10: 0.5})
        runs.add("better", seed, solved=[1, 1, 0, 0], curve={0: 0.0, 5: 0.1 + 2 * plus, 10: 0.5})
    pairs = [["better", "plain"], ["plain", "better"]]
    study = of_auc(runs, tests=pairs, equivalence={"margin": 50.0, "pairs": pairs[:1]})
    arms = read_results(runs.tracker, study, runs.counted(study).runs)
    assert arms[0].by_seed("auc") == pytest.approx(dict.fromkeys("012", 0.3))
    assert arms[1].by_seed("auc") == pytest.approx({"0": 0.5, "1": 0.6, "2": 0.7})
    gain = rows_of(arms, "auc", start_per_seed=True)[1].gain
    assert gain is not None
    half = 4.302652729696142 * 0.1 / math.sqrt(3)
    assert (gain.over_seeds.value, gain.over_seeds.half, gain.side) == (pytest.approx(0.3), pytest.approx(half), 1)
    report_lines(runs, tmp_path, study)
    assert [float(line["auc"]) for line in records(runs, tmp_path, "study_runs.csv")] == pytest.approx(
        [0.3, 0.3, 0.3, 0.5, 0.6, 0.7]
    )
    text = (tmp_path / runs.name / "study.md").read_text()
    p = 2 * stdtr(2, -math.sqrt(3) * 3)
    low, high = (f"{30 + sign * 100 * half:+.1f}" for sign in (-1, 1))
    assert f"| better − plain | 3 | +30.0 | [{low}, {high}] | {p:.4f} | {2 * p:.4f} | not significant |" in text
    inner = 2.919985580355516 * 10 / math.sqrt(3)
    assert f"| better − plain | 3 | +30.0 | [{30 - inner:+.1f}, {30 + inner:+.1f}] | equivalent |" in text
    assert "| better | 37.5 | +6.2 ± 0.0 | 50.0 | +25.0 ± 0.0 |" in text, "sampled and greedy success at the end"


def test_tests_of_unfinished_arms_are_undecided(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    pairs = [["better", "plain"]]
    study = of_auc(runs, tests=pairs, equivalence={"margin": 2.0, "pairs": pairs})
    arms = read_results(runs.tracker, study, runs.counted(study).runs)
    for table in (family_table(study, arms), equivalence_table(study, arms)):
        assert table is not None
        assert (table.rows[0][1], table.rows[0][-1]) == ("0", "undecided")


def test_auc_requires_equal_steps(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 0, solved=[0, 1], curve=RISING)
    with pytest.raises(StudyError, match=r"better seed 0 .* \[0, 5, 10\]"):
        read_results(runs.tracker, of_auc(runs), runs.counted().runs)


def test_critic_seconds_are_shared_by_runs_that_reuse_it(runs: Any) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    for seed in (0, 1):
        runs.add("better", seed, solved=[1, 1], curve=RISING, critic_seconds=40.0)
    plain, better = read_results(runs.tracker, runs.study(), runs.counted().runs)
    assert [result.critic for result in better.seeds.values()] == [f"{runs.name}-better-{s}-today" for s in (0, 1)]
    reusing = replace(better, seeds={seed: replace(result, critic="one") for seed, result in better.seeds.items()})
    for arm, shared in ((better, 40), (reusing, 20)):
        found = csv.DictReader(runs_as_csv([plain, arm]).splitlines())
        expected = [("0.0", "0.0"), *[("40.0", f"{shared}.0")] * 2]
        assert [(line["critic_seconds"], line["critic_seconds_shared"]) for line in found] == expected
        lines = notes_on(runs.study(), [plain, arm], runs.counted())
        assert any(line.endswith(f": better 40 s, {shared} s shared.") for line in lines)
