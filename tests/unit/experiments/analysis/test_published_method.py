"""Experiments of the papers are known as the rows that they repeat, by what they compose to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from contrastive_reasoning.published import PublishedArm, published_table
from experiments.analysis.arms import arms_by
from experiments.analysis.published_method import published_arm
from experiments.schema import register
from experiments.tracking.parameters import flatten
from tests.unit.experiments.comparison_kit import finished

register()


def found(experiment: str, *overrides: str) -> PublishedArm | None:
    """What stands beside a run of an experiment at the papers' scale."""
    with initialize_config_module("conf", version_base="1.3"):
        words = [f"experiment={experiment}", "scale=paper", *overrides]
        config = compose("config", words, return_hydra_config=True)
    tags = {group: str(option) for group, option in config.hydra.runtime.choices.items() if option and "/" not in group}
    policy = flatten({"policy": OmegaConf.to_container(config.policy, resolve=True)})
    params = policy | {"suite.published": str(config.suite.published)}
    run = finished(experiment, seed=0, metrics={}, params=params)
    (arm,) = arms_by([replace(run, tags={**tags, "experiment": experiment, "seed": "0"})], ["experiment"])
    return published_arm(arm, published_table(params["suite.published"]))


@pytest.mark.parametrize(
    ("experiment", "method", "success"),
    [
        ("qwen_baseline", "GRPO", 80),
        ("qwen_critic_published", "GRPO+critic", 70),
        ("qwen_oracle", "GRPO+oracle", 90),
        ("llama_baseline", "GRPO", 75),
        ("llama_critic_published", "GRPO+critic", 63),
    ],
)
def test_the_arms_of_the_paper_on_critics(experiment: str, method: str, success: float) -> None:
    row = found(experiment)
    assert row is not None
    assert (row.method, row.figures) == (method, {"main": success})


def test_a_perfect_move_is_the_oracle_too() -> None:
    row = found("qwen_oracle", "reward=perfect_move")
    assert row is not None
    assert (row.method, row.figures["main"]) == ("GRPO+oracle, perfect moves", 90)


@pytest.mark.parametrize("experiment", ["llama_oracle", "qwen_critic", "qwen_critic_calibrated"])
def test_what_the_paper_has_no_figure_of_stands_beside_none(experiment: str) -> None:
    assert found(experiment) is None
