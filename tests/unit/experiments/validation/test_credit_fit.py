"""Checks before anything runs that reward, advantage and rollout fit together."""

from __future__ import annotations

from copy import deepcopy

import pytest
from omegaconf import DictConfig

from experiments.assemble import AssemblyError
from experiments.stages.experiment import check_parts
from experiments.validation import critic_values_states
from tests.config_kit import composed

FUNCTION = (
    "_target_:contrastive_reasoning.rewards.FunctionReward,name:own,workers:1,limit_s:1.0,memory_mib:64,"
    "max_failures:1.0,function:{_target_:contrastive_reasoning.tasks.examples.mentions_answer,_partial_:true}"
)
UNVERIFIED = ("reward=oracle", "reward.weight=0.0", "~reward.outcome", f"+reward.outcome={{{FUNCTION}}}")
UNVERIFIED_CALIBRATED = ("reward=oracle_calibrated", "~reward.source.outcome", f"+reward.source.outcome={{{FUNCTION}}}")
NO_STEPS = "advantage: a per-step advantage needs a reward that values steps .* has: "


def experiment(*overrides: str) -> DictConfig:
    return composed("experiment=llama_critic", *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ("reward=verifier", "advantage=grpo_lambda"),
        ("reward=oracle", "reward.weight=0.0", "advantage=gated", "advantage@advantage.advantage=process"),
        ("reward=oracle_flipped", "advantage=potential"),
        ("reward=oracle_calibrated", "reward@reward.source=oracle_flipped", "advantage=one_step"),
        ("reward=critic_calibrated", "advantage=gated", "advantage@advantage.advantage=one_step"),
        ("reward=random_potential", "advantage=gated", "advantage@advantage.advantage=survival"),
        ("reward=shuffled", "advantage=gated", "advantage@advantage.advantage=one_step"),
        ("reward=critic", "reward.weight=0.0", "rollout=dynamic", "advantage=process"),
        ("reward=constant_value", "advantage=survival"),
        ("reward=constant_logit", "advantage=one_step", "advantage.decay=1.0"),
        ("reward=shuffled_calibrated", "advantage=one_step"),
        ("reward=perfect_move", "advantage=process"),
        ("reward=game_level", "reward@reward.reward=oracle", "advantage=process"),
        ("reward=critic", "reward.weight=0.0", "critic=text", "advantage=process"),
        ("reward=monte_carlo", "rollout=vineppo", "advantage=vineppo"),
        (*UNVERIFIED, "advantage=process"),
    ],
)
def test_check_parts_accepts_matching_reward_advantage_and_rollout(overrides: tuple[str, ...]) -> None:
    check_parts(experiment(*overrides))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("reward=verifier", "advantage=process"), NO_STEPS + "VerifierReward"),
        (("reward=verifier_format", "advantage=process"), NO_STEPS + "WeightedSum"),
        (
            ("reward=verifier", "advantage=gated", "advantage@advantage.advantage=process"),
            "advantage: a trust gate needs a reward that values steps",
        ),
        (("reward=verifier", "advantage=potential"), "advantage: a potential needs .* has: VerifierReward"),
        (("reward=perfect_move", "advantage=gated"), "potential needs .* has: PerfectMoveReward"),
        (("reward=perfect_move", "advantage=vineppo"), "advantage=vineppo needs .* has: PerfectMoveReward"),
        (
            ("reward=critic", "reward.weight=0.0", "critic=text", "advantage=survival"),
            "survival needs .* has: CriticReward",
        ),
        (
            (*UNVERIFIED, "advantage=gated", "advantage@advantage.advantage=process"),
            "reward: none of its parts verifies, but TrustGate judges",
        ),
        (
            ("reward=critic", "advantage=gated", "advantage@advantage.advantage=process"),
            "reward.weight adds their values .* use reward.weight=0 or",
        ),
        (
            ("reward=game_level", "advantage=gated", "advantage@advantage.advantage=process"),
            "advantage: a trust gate .* use reward.weight=0",
        ),
        (
            ("reward=critic", "advantage=one_step_subsampled", "advantage@advantage.advantage=gated"),
            "advantage: a trust gate .* use reward.weight=0",
        ),
        (
            (
                *("reward=critic", "reward.weight=0.0", "critic=text"),
                *("advantage=one_step_subsampled", "advantage@advantage.advantage=gated"),
            ),
            "potential needs .* has: CriticReward",
        ),
        (
            ("reward.weight=0.5",),
            r"advantage: a potential of weight 1 takes nothing of the outcome, .* use reward\.weight=0 or",
        ),
        (
            ("reward=oracle_calibrated", "reward@reward.source=shuffled", "reward.source.weight=0.0"),
            "reward: source must have logits of states, .*, got ShuffledReward",
        ),
        (
            ("reward=shuffled_calibrated", "reward@reward.source=random_potential", "reward.source.weight=0.0"),
            "reward: source must have logits of states, .*, got RandomPotentialReward",
        ),
        ((*UNVERIFIED, "advantage=potential"), "advantage: a potential ends in the verified outcome"),
        (
            (*UNVERIFIED_CALIBRATED, "advantage=process"),
            "reward: none of its parts verifies, but CalibratedReward judges",
        ),
        (
            ("reward=critic_calibrated", "rollout=dynamic", "advantage=one_step"),
            "rollout: keeps the groups that differ, and CalibratedReward learns .* use rollout=engine",
        ),
        (("reward=monte_carlo",), "reward: MonteCarloReward reads values drawn with the rollouts: use rollout=vineppo"),
    ],
)
def test_check_parts_rejects_mismatched_parts_in_one_line(overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(AssemblyError, match=sentence) as error:
        check_parts(experiment(*overrides))
    assert "\n" not in str(error.value)


def test_critic_values_states_reads_critic_configuration() -> None:
    found = {
        name: critic_values_states(experiment(f"critic={name}").critic) for name in ("joint", "text", "numeric_v1")
    }
    assert found == {"joint": True, "text": False, "numeric_v1": False}
    assert critic_values_states(experiment("critic=joint_ensemble").critic)
    ensemble = deepcopy(experiment("critic=joint_ensemble").critic)
    ensemble.member._target_ = experiment("critic=text").critic._target_
    assert not critic_values_states(ensemble)
