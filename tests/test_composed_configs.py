"""The comparison of two trees' configurations reports exactly the differences."""

from __future__ import annotations

from tests.composed_configs import commands, compose_all, differences, initialised, renamed, report
from tests.config_kit import EXPERIMENTS

BASE = {"reward": {"weight": 0.5, "parts": ["a", "b"], "head": None}, "seed": 0}


def test_equal_configurations_have_no_difference() -> None:
    assert differences(BASE, {"seed": 0, "reward": {"parts": ["a", "b"], "head": None, "weight": 0.5}}) == []


def test_differences_list_each_leaf_with_both_values() -> None:
    here = {"reward": {"weight": True, "parts": ["a"], "head": {}}, "seeds": 0}
    assert differences(BASE, here) == [
        "reward.head: null -> {}",
        'reward.parts.1: "b" -> -',
        "reward.weight: 0.5 -> true",
        "seed: 0 -> -",
        "seeds: - -> 0",
    ]


def test_differences_return_composition_error_alone() -> None:
    assert differences(BASE, "refused: no such option") == ["refused: no such option"]


def test_report_groups_command_lines_with_same_differences() -> None:
    found = {"one": ["seed: 0 -> 1"], "two": ["name: 1 -> 2"], "three": ["seed: 0 -> 1"]}
    assert report(found) == "one; three\n    seed: 0 -> 1\ntwo\n    name: 1 -> 2"


def test_renamed_override_may_expand_to_several() -> None:
    renames = {"reward=clipo_l2": "reward=clipo reward.weight=1"}
    assert renamed(["seed=0", "reward=clipo_l2"], renames) == ["seed=0", "reward=clipo", "reward.weight=1"]


def test_commands_cover_every_experiment_and_errors_are_kept() -> None:
    with initialised():
        lines = commands()
        made = compose_all({"whole": lines["experiment=clipo_l2 scale=laptop"], "refused": ["reward=nothing"]})
    assert {f"experiment={name} scale=paper" for name in EXPERIMENTS} | {"name=part trainer=zero2"} <= set(lines)
    assert made["whole"]["name"] == "clipo_l2"
    assert made["refused"].startswith("refused: ")
