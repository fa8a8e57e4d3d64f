"""Each arm is compared with the arm of its own setting, as papers print four objectives with and without a method."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import mean

import pytest

from experiments.analysis.arms import Arm, arms_by
from experiments.analysis.baselines import compared_with, in_order, note_on_baselines
from experiments.analysis.comparison import comparison_of
from experiments.analysis.set_table import lines
from experiments.compare import compare, main
from experiments.track import Tracker
from experiments.tracking.carry import Carrier
from experiments.tracking.tracked_run import TrackedRun
from tests.unit.experiments.comparison_kit import PLAIN, finished
from tests.unit.experiments.conftest import Outputs

METRIC = "test/verifier/accuracy_sampled"
OTHER = "test/gsm_p1/verifier/accuracy_sampled"
OBJECTIVES = ("grpo", "dapo", "gspo", "gmpo")
GAINS = {"grpo": 0.01, "dapo": 0.02, "gspo": -0.03, "gmpo": 0.04}


def one(name: str, objective: str, reward: str, **tags: str) -> TrackedRun:
    run = finished(name, seed=0, metrics={METRIC: 0.5}, objective=objective, reward=reward)
    run.tags.update(tags)  # pyright: ignore[reportAttributeAccessIssue]
    return run


def arms_of(*runs: TrackedRun, by: tuple[str, ...] = ("experiment", "objective")) -> list[Arm]:
    return arms_by(runs, by)


def test_each_is_compared_with_the_one_of_its_objective() -> None:
    plain = [one("grpo_gsm8k", objective, "verifier") for objective in OBJECTIVES[:3]]
    shaped = [one("clipo_gsm8k", objective, "clipo") for objective in reversed(OBJECTIVES)]
    arms = arms_of(*plain, *shaped)
    compared = compared_with(arms, None)
    assert compared == [None, None, None, None, 2, 1, 0]
    ordered = [arms[place].label for place in in_order(compared)]
    assert ordered == [
        *("grpo_gsm8k · objective=grpo", "clipo_gsm8k · objective=grpo"),
        *("grpo_gsm8k · objective=dapo", "clipo_gsm8k · objective=dapo"),
        *("grpo_gsm8k · objective=gspo", "clipo_gsm8k · objective=gspo"),
        "clipo_gsm8k · objective=gmpo",
    ]
    against = {arms[place].label: arms[other] for place, other in enumerate(compared) if other is not None}
    (note,) = note_on_baselines(arms, against)
    assert note.startswith(
        "No Δ for clipo_gsm8k · objective=gmpo: no arm, or more than one, of grpo_gsm8k · objective=grp"
    )


def test_one_that_could_be_a_baseline_is_that_of_all() -> None:
    arms = arms_of(one("clipo", "dapo", "clipo"), one("plain", "grpo", "verifier"), one("other", "gspo", "clipo"))
    assert compared_with(arms, None) == [1, None, 1]
    assert in_order([1, None, 1]) == [1, 0, 2]
    assert note_on_baselines(arms, {"clipo": arms[1]}) == []


def test_a_wish_is_met_whatever_the_setting() -> None:
    arms = arms_of(one("a", "dapo", "verifier"), one("b", "grpo", "verifier"), one("c", "gspo", "clipo"))
    assert compared_with(arms, "a · objective=dapo") == [None, 0, 0]


@pytest.mark.parametrize(
    ("axis", "value"), [("debug", "fast"), ("family", "qwen"), ("task", "math"), ("scale", "paper")]
)
def test_what_was_run_otherwise_is_no_baseline(axis: str, value: str) -> None:
    other = one("tried_out", "grpo", "verifier", **{axis: value})
    arms = arms_of(other, one("plain", "grpo", "verifier"), one("clipo", "grpo", "clipo"))
    assert compared_with(arms, None) == [None, None, 1]


def test_neither_is_one_of_another_group_size_and_the_rewards_own_settings_are_the_methods() -> None:
    sizes = {size: {"rollout.group_size": size} for size in ("8", "16")}
    plain = [finished("plain", seed=0, metrics={}, params=params) for params in sizes.values()]
    shaped = [
        finished("clipo", seed=0, metrics={}, reward="clipo", params={**params, "reward.temperature": tau})
        for params in sizes.values()
        for tau in ("0.1", "0.2")
    ]
    arms = arms_of(*plain, *shaped, by=("experiment", "rollout.group_size", "reward.temperature"))
    assert compared_with(arms, None) == [None, None, 0, 0, 1, 1]


def test_of_two_that_are_alike_neither_is_taken() -> None:
    arms = arms_of(one("a", "grpo", "verifier"), one("b", "grpo", "verifier"), one("c", "grpo", "clipo"))
    assert compared_with(arms, None) == [None, None, None]
    (note,) = note_on_baselines(arms, {})
    assert note == "No Δ: 2 arms could be the baseline (a · objective=grpo, b · objective=grpo); say baseline=LABEL."


@pytest.fixture(scope="module")
def table1(tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four objectives with and without CLIPO, two seeds, two evaluation sets, in MLflow."""
    outputs = Outputs(tmp_path_factory.mktemp("table1"))
    for place, objective in enumerate(OBJECTIVES):
        for name, reward, gain in (("t1_grpo", "verifier", 0.0), ("t1_clipo", "clipo", GAINS[objective])):
            for seed in (0, 1):
                final = 0.4 + place / 10 + seed / 100 * (1 if gain else 2) + gain
                time = f"2026-01-01T00-00-0{place}"
                folder = outputs.run(name, seed=seed, final=final, reward=reward, time=time)
                (folder / "choices.json").write_text(
                    json.dumps({"reward": reward, "objective": objective, "task": "gsm8k", "debug": None})
                )
                stages = json.loads((folder / "stages.json").read_text())
                outputs.log(Path(stages["evaluate"]["folder"]), OTHER, {0: final / 2})
                Carrier(folder, tracker).carry(live=False)
    return ["t1_grpo", "t1_clipo"]


def test_a_papers_table_from_mlflow(tracker: Tracker, table1: list[str], tmp_path: Path) -> None:
    found = comparison_of(tracker, table1, metric=METRIC, sets=None, by=None, baseline=None)
    assert [arm.label for arm in found.arms] == [
        f"{name} · objective={objective}" for objective in OBJECTIVES for name in table1
    ]
    compare(tracker, table1, **PLAIN, output=tmp_path)
    (path,) = tmp_path.rglob("*.csv")
    rows = {(row["arm"], row["metric"]): row for row in csv.DictReader(path.open())}
    for metric, factor in ((METRIC, 1.0), (OTHER, 0.5)):
        for place, objective in enumerate(OBJECTIVES):
            plain, shaped = (rows[f"{name} · objective={objective}", metric] for name in table1)
            ours = [0.4 + place / 10 + seed / 100 + GAINS[objective] for seed in (0, 1)]
            theirs = [0.4 + place / 10 + 2 * seed / 100 for seed in (0, 1)]
            expected = factor * mean(a - b for a, b in zip(ours, theirs, strict=True))
            assert float(shaped["delta"]) == pytest.approx(expected, abs=1e-9)
            assert (shaped["delta_to"], shaped["delta_method"]) == (plain["arm"], "paired")
            assert (plain["delta"], plain["delta_to"]) == ("", "")
    written = path.with_suffix(".tex").read_text()
    assert written.count(r"$\Delta$ to t1\_grpo $\cdot$ objective=") == len(OBJECTIVES)
    gains = path.with_name(f"{path.stem}-gains.png")
    assert gains.stat().st_size > 10_000
    under = [line.label for line in lines(found.table) if line.label.startswith("Δ to")]
    assert under == [f"Δ to t1_grpo · objective={objective}" for objective in OBJECTIVES]


def test_of_one_set_the_baseline_stands_beside_each_difference(
    table1: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*table1, "sets=main"]) == 0
    said = capsys.readouterr().out
    assert "No Δ" not in said
    (markdown,) = tmp_path.rglob("*.md")
    head, _, *body = [line.split(" | ") for line in markdown.read_text().splitlines() if line.startswith("|")]
    assert head[4:6] == ["Δ", "to"]
    assert [line[5] for line in body] == [
        told for objective in OBJECTIVES for told in ("", f"t1_grpo · objective={objective}")
    ]
