"""Which arm is compared with which, and ``make compare`` from a real MLflow to its files."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import compare as module
from experiments.analysis.comparison import Request, baselines_of, comparison_of, note_on_baselines
from experiments.analysis.runs import ArmRuns, Refused, arms_by
from experiments.compare import compare, main
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.mlflow_sync.sync import FolderSync
from tests.unit.experiments.comparison_kit import SAMPLED, finished

OBJECTIVES = ("grpo", "dapo", "gspo", "gmpo")


def one(name: str, objective: str, reward: str, **tags: str) -> TrackedRun:
    return finished(name, seed=0, objective=objective, reward=reward, **tags)


def arms_of(*runs: TrackedRun, by: tuple[str, ...] = ("experiment", "objective")) -> list[ArmRuns]:
    return arms_by(runs, by)


def test_arms_are_compared_with_baseline_of_same_objective() -> None:
    plain = [one("grpo_gsm8k", objective, "verifier") for objective in OBJECTIVES[:3]]
    shaped = [one("clipo_gsm8k", objective, "clipo") for objective in reversed(OBJECTIVES)]
    arms = arms_of(*plain, *shaped)
    baselines = baselines_of(arms, None)
    assert baselines == [None, None, None, None, 2, 1, 0]
    against = {arms[place].label: arms[other] for place, other in enumerate(baselines) if other is not None}
    (note,) = note_on_baselines(arms, against)
    assert note.startswith("No Δ for clipo_gsm8k · objective=gmpo: ")


def test_single_or_requested_baseline_applies_to_all_arms() -> None:
    arms = arms_of(one("clipo", "dapo", "clipo"), one("plain", "grpo", "verifier"), one("other", "gspo", "clipo"))
    assert baselines_of(arms, None) == [1, None, 1]
    assert note_on_baselines(arms, {"clipo": arms[1]}) == []
    assert baselines_of(arms, "clipo · objective=dapo") == [None, 0, 0]
    named = arms_of(one("a", "grpo", "verifier"), one("b_baseline", "grpo", "critic"))
    assert baselines_of(named, None) == [1, None], "the name is asked first"


def test_baseline_shares_setting_and_group_size_but_not_reward_settings() -> None:
    for axis, value in (("debug", "fast"), ("scale", "paper")):
        other = one("tried_out", "grpo", "verifier", **{axis: value})
        arms = arms_of(other, one("plain", "grpo", "verifier"), one("clipo", "grpo", "clipo"))
        assert baselines_of(arms, None) == [None, None, 1]
    sizes = [{"rollout.group_size": size} for size in ("8", "16")]
    plain = [finished("plain", seed=0, params=params) for params in sizes]
    shaped = [
        finished("clipo", seed=0, reward="clipo", params={**params, "reward.temperature": tau})
        for params in sizes
        for tau in ("0.1", "0.2")
    ]
    arms = arms_of(*plain, *shaped, by=("experiment", "rollout.group_size", "reward.temperature"))
    assert baselines_of(arms, None) == [None, None, 0, 0, 1, 1]


def test_ambiguous_baseline_is_not_chosen() -> None:
    arms = arms_of(one("a", "grpo", "verifier"), one("b", "grpo", "verifier"), one("c", "grpo", "clipo"))
    assert baselines_of(arms, None) == [None, None, None]
    (note,) = note_on_baselines(arms, {})
    assert "(a · objective=grpo, b · objective=grpo)" in note


@pytest.fixture
def names(tracker: Tracker, outputs: Any, request: pytest.FixtureRequest) -> list[str]:
    """Names of a logged critic experiment and its baseline, with two seeds each; they contain the test's name."""
    prefix = re.sub(r"\W", "_", request.node.name)
    found = {f"{prefix}_critic": (0.40, "critic"), f"{prefix}_baseline": (0.30, "verifier")}
    for name, (final, reward) in found.items():
        for seed in (0, 1):
            FolderSync(outputs.run(name, seed=seed, final=final + 0.02 * seed, reward=reward), tracker).send(live=False)
    return list(found)


def test_compare_writes_files_and_logs_them_to_mlflow(tracker: Tracker, names: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        notes = compare(tracker, Request(names=names), output=tmp_path)
    assert len(notes) == 1, "nothing to warn of"
    (table,) = tmp_path.rglob("*.csv")
    baseline, critic = csv.DictReader(table.open())
    assert (baseline["arm"], critic["arm"]) == (names[1], names[0]), "the baseline comes first"
    assert (float(critic["delta"]), critic["delta_method"]) == (pytest.approx(0.10), "paired")
    (logged,) = tracker.runs(names, kind="comparison")
    endings = (".csv", ".md", ".tex", ".png", "-gains.png")
    assert set(tracker.artifacts.files(logged.run_id)) == {f"{table.stem}{ending}" for ending in endings}


def test_metrics_that_differ_after_a_dot_have_separate_files(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    metrics = ("test/above_0.2", "test/above_0.4")
    outputs.stage("evaluate", "dotted00.5000000.2", {metric: {0: 0.5} for metric in metrics})
    FolderSync(outputs.run("dotted", seed=0, final=0.5), tracker).send(live=False)
    for metric in metrics:
        compare(tracker, Request(names=["dotted"], metric=metric), output=tmp_path)
    assert {path.stem for path in tmp_path.rglob("*.csv")} == {metric.replace("/", "-") for metric in metrics}


def test_comparison_excludes_unfinished_runs_and_runs_without_metric(
    tracker: Tracker, outputs: Any, names: list[str], tmp_path: Path
) -> None:
    outputs.stage("evaluate", "counts_greedy00.5000000.2", {"test/verifier/accuracy": {0: 0.5}})
    FolderSync(outputs.run("counts_greedy", seed=0, final=0.5), tracker).send(live=False)
    lines = compare(tracker, Request(names=[*names, "counts_greedy"], metric=SAMPLED), output=tmp_path)
    assert f"Without {SAMPLED}, and so in no table: counts_greedy (1 run)." in lines
    folder = outputs.run("counts_unfinished", seed=0, final=0.4)
    (folder / "summary.json").unlink()
    FolderSync(folder, tracker).send(live=False)
    with pytest.raises(Refused, match="counts_unfinished"):
        comparison_of(tracker, Request(names=["counts_unfinished"]))


def test_compare_rejects_unsafe_names_and_accepts_long_ones(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    """Other users of the same tracker may have given an experiment such a name."""
    for name in ("../x", "/tmp/x", "a/b"):
        with pytest.raises(Refused, match=f"^'{name}' "):
            compare(tracker, Request(names=[name]), output=tmp_path / "compare")
    assert not (tmp_path / "compare").exists()
    names = [f"cmp_{letter * 90}" for letter in "abc"]
    for name in names:
        FolderSync(outputs.run(name, seed=0, final=0.4), tracker).send(live=False)
    *_, written_at = compare(tracker, Request(names=names), output=tmp_path / "compare")
    (table,) = tmp_path.rglob("*.csv")
    assert written_at == f"Written: {table.with_suffix('')}.*"
    assert {row["arm"] for row in csv.DictReader(table.open())} == set(names)


def test_wrong_argument_of_compare_prints_one_line(
    tracker: Tracker, names: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    critic, baseline = names
    monkeypatch.setattr(module, "connect", lambda: tracker)
    for arguments, named in (
        ([f"{critic}x"], [f"'{critic}x'", f"'{critic}'"]),
        ([critic, "metric=test/verifier/accuracy_sample"], ["'test/verifier/accuracy_sample'", f"'{SAMPLED}'"]),
        ([critic, "by=rewar"], ["'rewar'", "'reward'"]),
        ([critic, baseline, "--baseline=nobody"], ["'nobody'", baseline, critic]),
    ):
        assert main(arguments) == 2
        message = capsys.readouterr().err
        assert [name for name in named if name not in message] == []
        assert message.count("\n") == 1


def test_compare_and_report_do_not_import_model_libraries() -> None:
    script = (
        "import sys; import experiments.compare, experiments.report\n"
        "print([m for m in ('torch', 'transformers', 'peft', 'lightning') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_compare_of_study_without_runs_prints_reason(
    tracker: Tracker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "connect", lambda: tracker)
    assert main(["countdown_credit"]) == 2
    assert "countdown_credit in MLflow" in capsys.readouterr().err
