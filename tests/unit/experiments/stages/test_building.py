"""Parts that fit together pass the checks; config/test_wrong_configurations.py has those that do not."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
from omegaconf import DictConfig

from contrastive_reasoning.tasks.countdown import trace
from contrastive_reasoning.tasks.countdown.indented import search_lines
from contrastive_reasoning.tasks.countdown.trace import search_trace
from experiments.assemble import AssemblyError
from experiments.stages.building import check_credit_fits, check_online, check_parts, critic_values_states
from tests.config_kit import composed
from tests.unit.experiments.config.test_wrong_configurations import UNVERIFIED

OWN_GOAL = "online.updates.pairing._target_=datamodules.hindsight_states.OwnGoal"


def experiment(*overrides: str) -> DictConfig:
    return composed(*([] if overrides[0].startswith("experiment=") else ["experiment=llama_critic"]), *overrides)


def test_check_parts_ignores_settings_of_skipped_training(tmp_path: Path) -> None:
    for more in ((), ("warm_start=none",)):
        check_parts(experiment("experiment=llama_baseline", "debug=fast", *more))
    invalid = ("debug=fast", "pretraining.optimizer.betas=[0.9,2.0]")
    with pytest.raises(AssemblyError, match=r"pretraining\.optimizer: betas"):
        check_parts(experiment(*invalid))
    check_parts(experiment(*invalid, f"reward.source.checkpoint={tmp_path}"))


ONE_STEP = "advantage@advantage.advantage=one_step"
ONLINE = "experiment=llama_critic_online"


@pytest.mark.parametrize(
    "line",
    [
        "reward=verifier advantage=grpo_lambda",
        "reward=oracle reward.weight=0.0 advantage=gated advantage@advantage.advantage=process",
        "reward=oracle_flipped advantage=potential",
        "reward=oracle_calibrated reward@reward.source=oracle_flipped advantage=one_step",
        f"reward=critic_calibrated advantage=gated {ONE_STEP}",
        "reward=random_potential advantage=gated advantage@advantage.advantage=survival",
        f"reward=shuffled advantage=gated {ONE_STEP}",
        "reward=critic reward.weight=0.0 rollout=dynamic advantage=process",
        "reward=constant_value advantage=survival",
        "reward=constant_logit advantage=one_step advantage.decay=1.0",
        "reward=shuffled_calibrated advantage=one_step",
        "reward=perfect_move advantage=process",
        "reward=game_level reward@reward.reward=oracle advantage=process",
        "reward=critic reward.weight=0.0 critic=text advantage=process",
        "reward=monte_carlo rollout=vineppo advantage=vineppo",
        f"{UNVERIFIED} advantage=process",
        ONLINE,
        f"{ONLINE} critic=numeric_v2 datamodule=traces_v2 loss=info_nce {OWN_GOAL}",
        f"{ONLINE} online=none reward=verifier",
        f"{ONLINE} reward=shuffled",
        f"{ONLINE} reward=critic_calibrated advantage=one_step",
        f"{ONLINE} reward=critic_calibrated advantage=gated {ONE_STEP} advantage.window=5",
        f"{ONLINE} online=none critic=joint_ensemble reward=critic_calibrated",
        "experiment=llama_critic_outcomes",
    ],
)
def test_check_parts_accepts_parts_that_fit(line: str) -> None:
    check_parts(experiment(*line.split()))


def test_users_own_class_states_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_reward.py").write_text("class Own:\n    reads_logits = values_steps = verifies = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = deepcopy(experiment("reward=oracle", "reward.weight=0.0", "advantage=process"))
    oracle = config.reward
    config.reward = {"_target_": "own_reward.Own", "source": oracle}
    check_credit_fits(config)
    config.reward = {"_target_": "own_reward.Own", "source": oracle.outcome}
    with pytest.raises(AssemblyError, match=r"^reward: source .*logits.*, got VerifierReward"):
        check_credit_fits(config)


def test_reward_on_search_lines_rejects_styles_without_indented_lines() -> None:
    """Triples come from indentation, so a style whose own searches have none cannot have any."""
    traces = {style: search_trace((21, 16, 17, 26), 46, style=style).text for style in trace.STYLES}
    flat = {style for style, text in traces.items() if all(line == line.lstrip() for line in search_lines(text))}
    assert {"direct"} <= flat < set(trace.STYLES)
    for style in trace.STYLES:
        config = composed("experiment=llama_critic_released", "critic=text", f"task.style={style}")
        if style not in flat:
            check_credit_fits(config)
            continue
        with pytest.raises(AssemblyError, match=rf"^task\.style={style}: .*task\.style=released"):
            check_credit_fits(config)
    for fitting in ("number_embedding", "text"):
        check_credit_fits(composed("experiment=llama_critic_released", f"critic={fitting}"))


VLLM = [
    *("rollout.engine._target_=contrastive_reasoning.rollout.vllm.VLLMEngine", "+rollout.engine.url=u"),
    *(f"+rollout.engine.{key}=1" for key in ("sleep_level", "concurrency", "timeout", "retries")),
    "+rollout.engine.weights_folder=w",
    "trainer.devices=2",
]


@pytest.mark.parametrize(("rollout", "name"), [("dynamic", "DynamicSampling"), ("vineppo", "VinePPORollouts")])
def test_dynamic_and_vineppo_rollouts_reject_vllm_on_two_ranks(rollout: str, name: str) -> None:
    def check_rollout(*overrides: str) -> None:
        check_credit_fits(composed("experiment=llama_baseline", *overrides))

    with pytest.raises(AssemblyError, match=rf"^rollout: {name} .* 2 ranks.*rollout=vllm.*trainer\.devices=1"):
        check_rollout(f"rollout={rollout}", *VLLM)
    check_rollout(f"rollout={rollout}", *VLLM[:-1])
    check_rollout(f"rollout={rollout}", VLLM[-1])
    check_rollout("rollout=vllm", VLLM[-1])


CRITICS = ("joint", "joint_ensemble", "text", "numeric_v1")


def test_critic_values_states_reads_critic_configuration() -> None:
    found = {name for name in CRITICS if critic_values_states(experiment(f"critic={name}").critic)}
    assert found == {"joint", "joint_ensemble"}
    ensemble = deepcopy(experiment("critic=joint_ensemble").critic)
    ensemble.member._target_ = experiment("critic=text").critic._target_
    assert not critic_values_states(ensemble)


def test_critic_of_outcomes_may_read_states_but_not_lines() -> None:
    check_online(experiment("experiment=llama_critic_outcomes", "critic=joint"))
    with pytest.raises(AssemblyError, match=r"^online: .*TextCritic"):
        check_online(experiment("experiment=llama_critic_outcomes", "critic=text"))


def test_critic_under_unknown_attribute_of_reward_is_rejected() -> None:
    """A user's own reward may hold another one under a name that the check does not search, here ``inner``."""
    config = deepcopy(experiment(ONLINE))
    config.reward = {"_target_": "contrastive_reasoning.rewards.ShuffledReward", "inner": config.reward}
    with pytest.raises(AssemblyError, match=r"online: finds no critic within ShuffledReward, .* use reward=critic"):
        check_online(config)


def test_task_without_target_range_is_rejected() -> None:
    with pytest.raises(AssemblyError, match=r"online: .*task\.target_range"):
        check_online(experiment(ONLINE, "task=gsm8k", "online.task=null"))
