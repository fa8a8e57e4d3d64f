"""Which runs are seeds of one arm, which axes separate arms, and the labels of arms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.analysis.comparison import notes_on_arms
from experiments.analysis.runs import (
    arms_by,
    distinguishing_axes,
    mixed_settings,
    names_the_start,
    without_common_axes,
    without_local_paths,
)
from experiments.mlflow_sync import TrackedRun
from tests.unit.experiments.comparison_kit import finished


def run(name: str, seed: int, **params: str) -> TrackedRun:
    return finished(name, seed=seed, params={"task.seed": str(seed), **params})


def labels(runs: list[TrackedRun]) -> list[str]:
    return [arm.label for arm in arms_by(runs, distinguishing_axes(runs))]


def test_runs_with_different_settings_are_separate_arms() -> None:
    """``task.seed`` selects the problems, independently of the run's seed. A copy of the run's seed has no effect."""
    runs = [run("a", seed, weight=weight) for weight in ("0.1", "0.2") for seed in (0, 1)] + [run("b", 0, weight="0.1")]
    assert labels(runs) == ["a · weight=0.1", "a · weight=0.2", "b · weight=0.1"]
    runs = [finished("a", seed=s, params={"task.seed": str(problems)}) for problems in (0, 7) for s in (0, 1)]
    assert labels(runs) == ["a · task.seed=0", "a · task.seed=7"]
    assert labels([finished("a", seed=s, params={"critic.seed": str(s)}) for s in (0, 1)]) == ["a"]


def test_observing_settings_do_not_separate_arms() -> None:
    weight = {"reward.weight": "0.1"}
    health = {"callbacks.every.health._target_": "callbacks.health.Health", "callbacks.every.health.seconds": "9"}
    watched = {**health, "output_dir": "there"}
    shown = {"progress": "json", "progress._target_": "JSONLines"}
    runs = [run("a", 0, **weight), run("a", 1, **weight, **watched), run("a", 2, **weight, **shown)]
    (arm,) = arms_by(runs, distinguishing_axes(runs))
    assert [*arm.runs] == ["0", "1", "2"]
    assert mixed_settings(arm) == {}


def test_callback_that_acts_on_training_separates_arms() -> None:
    averaged = {"callbacks.grpo.own._target_": "own.Averaged", "callbacks.grpo.own.decay": "0.9"}
    other = averaged | {"callbacks.grpo.own.decay": "0.99"}
    runs = [run("a", seed, **params) for params in ({}, averaged, other) for seed in (0, 1)]
    assert len(labels(runs)) == 3


def test_start_per_seed_of_a_study_does_not_separate_arms() -> None:
    """Each seed of a study may start from its own policy, which all arms share. Other policies separate arms."""

    def of_a_study(arm: str, seed: int, policy: str) -> TrackedRun:
        one = run("s", seed, **{"policy.pretrained": policy, "module.policy.pretrained": policy})
        return replace(one, tags={**one.tags, "study": "s", "arm": arm})

    runs = [of_a_study(arm, seed, f"start-{seed}") for arm in ("grpo", "critic") for seed in (0, 1)]
    assert [sorted(arm.runs) for arm in arms_by(runs, distinguishing_axes(runs))] == [["0", "1"]] * 2
    assert "policy.pretrained" in distinguishing_axes([*runs, of_a_study("oracle", 0, "start-1")])
    of_no_study = [run("a", seed, **{"policy.pretrained": f"model-{seed}"}) for seed in (0, 1)]
    assert "policy.pretrained" in distinguishing_axes(of_no_study), "two models, and not two seeds of one"


def test_labels_have_last_part_of_paths_and_only_differing_axes() -> None:
    models = ["/home/ann/old/llama", "/home/ann/new/llama", "/home/ann/qwen", "org/name"]
    arms = arms_by([run("a", 0, model=model) for model in models], ["experiment", "model"])
    shown = without_local_paths(without_common_axes(arms))
    assert [arm.label for arm in shown] == ["model=…/llama", "model=…/llama (2)", "model=…/qwen", "model=org/name"]
    assert [arm.label for arm in without_common_axes(arms[3:])] == ["a · model=org/name"], "alone it keeps all"


def test_newest_run_of_a_seed_counts() -> None:
    (arm,) = arms_by([finished("a", seed=0, start=start) for start in (2, 1)], ["experiment"])
    assert [run.start for run in arm.runs.values()] == [2]
    assert notes_on_arms([arm]) == [
        "1 older run(s) left out: a newer one of the same arm and seed counts.",
        "a: counts as one arm, but differs in git_sha (sha1, sha2).",
    ]


@pytest.mark.parametrize(
    ("name", "is_start"),
    [
        ("policy.pretrained", True),
        ("module.reference.pretrained", True),
        ("critic.encoder.pretrained", False),
        ("other_policy.pretrained", False),
    ],
)
def test_notes_on_arms_ignore_start_and_reference_if_starts_may_differ(name: str, is_start: bool) -> None:
    arms = arms_by([finished("a", seed=s, params={name: f"policy{s}"}) for s in (0, 1)], ["experiment"])
    assert names_the_start(name) == is_start
    assert (f"{name} (policy0, policy1)" in " ".join(notes_on_arms(arms, starts_may_differ=True))) != is_start
    assert f"{name} (policy0, policy1)" in " ".join(notes_on_arms(arms))
