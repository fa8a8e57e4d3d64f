"""Which runs are seeds of one arm, what sets arms apart, and what they are called."""

from __future__ import annotations

from dataclasses import replace

from experiments.analysis.arms import arms_by, mixed, shareable, telling_axes, without_common
from experiments.tracking.tracked_run import TrackedRun
from tests.unit.experiments.comparison_kit import record


def test_by_default_unlike_runs_are_never_averaged() -> None:
    runs = [record("a", seed=s, weight=w) for w in ("0.1", "0.2") for s in (0, 1)] + [record("b", seed=0, weight="0.1")]
    axes = telling_axes(runs)
    assert axes == ["experiment", "weight"]
    assert [arm.label for arm in arms_by(runs, axes)] == ["a · weight=0.1", "a · weight=0.2", "b · weight=0.1"]


def test_what_only_watches_sets_no_runs_apart() -> None:
    before = record("a", seed=0, **{"reward.weight": "0.1"})
    after = record("a", seed=1, **{"reward.weight": "0.1", "callbacks.every.clock.limit_s": "9", "output_dir": "there"})
    shown = {"progress": "json", "progress._target_": "JSONLines", "progress.seconds_between_lines": "60"}
    again = record("a", seed=2, **{"reward.weight": "0.1"}, **shown)
    runs = [before, after, again]
    (arm,) = arms_by(runs, telling_axes(runs))
    assert set(arm.runs) == {"0", "1", "2"}
    assert mixed(arm) == {}


def test_runs_on_other_problems_are_another_arm() -> None:
    """``task.seed`` decides the problems, whatever a run's own seed; one that only hands that on sets nothing apart."""
    runs = [record("a", seed=s, **{"task.seed": str(problems)}) for problems in (0, 7) for s in (0, 1)]
    assert [arm.label for arm in arms_by(runs, telling_axes(runs))] == ["a · task.seed=0", "a · task.seed=7"]
    handed_on = [record("a", seed=s, **{"critic.seed": str(s)}) for s in (0, 1)]
    assert telling_axes(handed_on) == ["experiment"]


def test_the_starts_of_a_study_set_no_seeds_apart_and_other_policies_do() -> None:
    """Each seed of a study may begin from a policy of its own, which its arms share."""

    def of_a_study(arm: str, seed: int, policy: str) -> TrackedRun:
        run = record("s", seed=seed, **{"policy.pretrained": policy, "module.policy.pretrained": policy})
        return replace(run, tags={**run.tags, "study": "s", "arm": arm})

    runs = [of_a_study(arm, seed, f"start-{seed}") for arm in ("grpo", "critic") for seed in (0, 1)]
    assert [sorted(arm.runs) for arm in arms_by(runs, telling_axes(runs))] == [["0", "1"]] * 2
    mixed_up = [*runs, of_a_study("oracle", 0, "start-1")]
    assert "policy.pretrained" in telling_axes(mixed_up)
    typed = [record("a", seed=seed, **{"policy.pretrained": f"model-{seed}"}) for seed in (0, 1)]
    assert "policy.pretrained" in telling_axes(typed), "no study: two models, and not two seeds of one"


def test_others_read_the_last_part_of_a_path_and_tell_arms_apart_by_it() -> None:
    models = ["/home/ann/old/llama", "/home/ann/new/llama", "/home/ann/qwen", "org/name"]
    runs = [record("a", seed=0, model=model) for model in models]
    arms = shareable(without_common(arms_by(runs, ["experiment", "model"])))
    assert [arm.label for arm in arms] == ["model=…/llama", "model=…/llama (2)", "model=…/qwen", "model=org/name"]


def test_a_label_is_what_tells_arms_apart() -> None:
    runs = [record("a", seed=0, task="t", weight=weight) for weight in ("0.1", "0.2")]
    arms = arms_by(runs, ["experiment", "task", "weight"])
    assert [arm.label for arm in without_common(arms)] == ["weight=0.1", "weight=0.2"]
    assert [arm.label for arm in without_common(arms[:1])] == ["a · task=t · weight=0.1"], "alone it keeps them"


def test_of_a_seed_the_newest_run_counts() -> None:
    runs = [record("a", seed=0, start=1, value=0.1), record("a", seed=0, start=2, value=0.9)]
    (arm,) = arms_by(runs, telling_axes(runs))
    assert [run.start for run in arm.runs.values()] == [2]
    assert mixed(arm) == {"git_sha": ["sha1", "sha2"]}


def test_what_a_wish_mixes_is_said() -> None:
    runs = [record("a", seed=s, weight=f"0.{s}") for s in (1, 2)]
    (arm,) = arms_by(runs, ["experiment"])
    assert mixed(arm) == {"weight": ["0.1", "0.2"]}
