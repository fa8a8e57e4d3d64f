"""Checks before anything is loaded that the online critic can be trained."""

from __future__ import annotations

from copy import deepcopy

import pytest
from omegaconf import DictConfig

from experiments.assemble import AssemblyError
from experiments.stages.experiment import check_parts
from experiments.validation import check_online
from tests.config_kit import composed


def experiment(*overrides: str) -> DictConfig:
    return composed("experiment=llama_critic_online", *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (
            "critic=numeric_v2",
            "datamodule=traces_v2",
            "loss=info_nce",
            "online.lessons.pairing._target_=datamodules.hindsight_states.OwnGoal",
        ),
        ("online=none", "reward=verifier"),
        ("reward=shuffled",),
        ("reward=critic_calibrated", "advantage=one_step"),
        ("reward=critic_calibrated", "advantage=gated", "advantage@advantage.advantage=one_step", "advantage.window=5"),
        ("online=none", "critic=joint_ensemble", "reward=critic_calibrated"),
    ],
)
def test_check_parts_accepts_matching_online_settings(overrides: tuple[str, ...]) -> None:
    check_parts(experiment(*overrides))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("reward=verifier",), "online: trains the one critic of the reward, which has 0: use reward=critic"),
        (("critic=text",), "TextCritic reads more: use critic=joint or critic=numeric_v2, or online=none"),
        (("critic=joint_ensemble",), "online: trains one critic, .* an EnsembleCritic learn .*: use critic=joint or"),
        (("online.lessons.steps=0",), "online: online.lessons.steps must be at least 1, got 0"),
        (
            ("reward=critic_calibrated", "advantage=gated", "advantage@advantage.advantage=one_step"),
            r"online: online\.refresh_every=10 changes the critic before advantage\.window=10 .* a smaller window",
        ),
        (
            (
                *("reward=critic_calibrated", "advantage=one_step_subsampled", "advantage@advantage.advantage=gated"),
                "advantage@advantage.advantage.advantage=one_step",
            ),
            r"online: online\.refresh_every=10 changes the critic before advantage\.window=10 .* a smaller window",
        ),
        (("online.refresh_every=0",), "online: online.refresh_every must be at least 1, got 0"),
    ],
)
def test_check_parts_rejects_mismatched_online_settings(overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(AssemblyError, match=sentence):
        check_parts(experiment(*overrides))


def test_outcome_critic_fits_its_experiment_and_rejects_critics_of_lines() -> None:
    check_parts(composed("experiment=llama_critic_outcomes"))
    check_online(composed("experiment=llama_critic_outcomes", "critic=joint"))
    for other in ("critic=text", "critic=joint_ensemble", "online.lessons.batch_size=0", "online.buffer_batches=0"):
        with pytest.raises(AssemblyError, match="online"):
            check_online(composed("experiment=llama_critic_outcomes", other))


def test_critic_under_unknown_attribute_of_reward_is_rejected() -> None:
    """A user's own reward may hold another one under a name that the check does not search, here ``inner``."""
    config = deepcopy(experiment())
    config.reward = {"_target_": "contrastive_reasoning.rewards.ShuffledReward", "inner": config.reward}
    with pytest.raises(AssemblyError, match=r"online: finds no critic within ShuffledReward, .* use reward=critic"):
        check_online(config)


def test_task_without_target_range_is_rejected() -> None:
    with pytest.raises(AssemblyError, match=r"online: .*task\.target_range"):
        check_online(experiment("task=gsm8k", "online.task=null"))
