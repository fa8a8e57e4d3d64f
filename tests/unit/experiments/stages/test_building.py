"""Parts that reject their arguments, or do not fit together, are named before the first stage runs."""

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

FUNCTION = (
    "_target_:contrastive_reasoning.rewards.FunctionReward,name:own,workers:1,limit_s:1.0,memory_mib:64,"
    "max_failures:1.0,function:{_target_:contrastive_reasoning.tasks.examples.mentions_answer,_partial_:true}"
)
UNVERIFIED = ("reward=oracle", "reward.weight=0.0", "~reward.outcome", f"+reward.outcome={{{FUNCTION}}}")
UNVERIFIED_CALIBRATED = ("reward=oracle_calibrated", "~reward.source.outcome", f"+reward.source.outcome={{{FUNCTION}}}")


def check(*overrides: str) -> None:
    check_parts(composed("experiment=llama_baseline", "debug=fast", *overrides))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["suite.settings.main.k_values=[9]", "budget.evaluate.samples=4"], r"pass@9.*9 samples"),
        (["rollout.greedy.temperature=-1.0"], "temperature"),
        (["rollout.sampling.top_p=0.0"], r"top_p.*0\.0"),
        (["callbacks.grpo.step_credit.steps=0"], "step_credit"),
        (["rollout.group_size=1"], r"^rollout: .*group_size.* at least 2"),
        (["optimizer.betas=[0.9,2.0]"], "optimizer: betas"),
        (
            ["warm_start=none", "policy.pretrained=null"],
            r"^policy\.pretrained=null with warm_start=none: give the policy",
        ),
        (["warm_start=none", "warm_start.train=true"], r"^warm_start\.train=true with warm_start=none: choose what"),
        (["warm_start.train=true", "warm_start.module.optimizer.betas=[0.9,2.0]"], r"module\.optimizer: betas"),
        (["task.number_range=[20,20]"], r"^task: .* holds"),
    ],
)
def test_check_parts_rejects_invalid_setting_of_any_stage(overrides: list[str], sentence: str) -> None:
    with pytest.raises(AssemblyError, match=sentence):
        check("stages=[warm_start,grpo,evaluate]", *overrides)


def test_error_names_configuration_keys_that_values_come_from() -> None:
    """The user sets the steps of the budget, and the optimizer's steps are derived from them."""
    few = "budget.critic.steps=20", "budget.critic.warmup_steps=20"
    with pytest.raises(AssemblyError, match=r"got 20 \(.*\bbudget\.critic\.warmup_steps.*\bbudget\.critic\.steps\b"):
        check("experiment=llama_critic", *few)


def test_check_parts_ignores_settings_of_skipped_training(tmp_path: Path) -> None:
    check()
    check("warm_start=none")
    invalid = ("experiment=llama_critic", "pretraining.optimizer.betas=[0.9,2.0]")
    with pytest.raises(AssemblyError, match=r"pretraining\.optimizer: betas"):
        check(*invalid)
    check(*invalid, f"reward.source.checkpoint={tmp_path}")


def experiment(*overrides: str) -> DictConfig:
    return composed(*([] if overrides[0].startswith("experiment=") else ["experiment=llama_critic"]), *overrides)


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


GATED, GATED_PROCESS = "advantage=gated", "advantage@advantage.advantage=process"
SUBSAMPLED_GATE = ("advantage=one_step_subsampled", "advantage@advantage.advantage=gated")


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (("reward=verifier", "advantage=process"), "^advantage: .*values steps .*VerifierReward"),
        (("reward=verifier_format", "advantage=process"), "^advantage: .*values steps .*WeightedSum"),
        (("reward=verifier", GATED, GATED_PROCESS), "advantage: a trust gate needs a reward that values steps"),
        (("reward=verifier", "advantage=potential"), "advantage: .*VerifierReward"),
        (("reward=perfect_move", GATED), "advantage: a potential .*PerfectMoveReward"),
        (("reward=perfect_move", "advantage=vineppo"), "advantage=vineppo .*PerfectMoveReward"),
        (("reward=critic", "reward.weight=0.0", "critic=text", "advantage=survival"), "survival .*CriticReward"),
        (
            ("reward=critic", "reward.weight=0.0", "critic=text", *SUBSAMPLED_GATE),
            "advantage: a potential .*CriticReward",
        ),
        ((*UNVERIFIED, "advantage=potential"), "advantage: a potential .*verified"),
        ((*UNVERIFIED, GATED, GATED_PROCESS), "reward: .*TrustGate"),
        ((*UNVERIFIED_CALIBRATED, "advantage=process"), "reward: .*CalibratedReward"),
        (("reward=critic", GATED, GATED_PROCESS), r"advantage: a trust gate .*use reward\.weight=0 or"),
        (("reward=game_level", GATED, GATED_PROCESS), r"advantage: a trust gate .*use reward\.weight=0 or"),
        (("reward=critic", *SUBSAMPLED_GATE), r"advantage: a trust gate .*use reward\.weight=0 or"),
        (("reward.weight=0.5",), r"advantage: a potential of weight 1 .*use reward\.weight=0 or"),
        (
            ("reward=oracle_calibrated", "reward@reward.source=shuffled", "reward.source.weight=0.0"),
            "reward: source .*logits.*, got ShuffledReward",
        ),
        (
            ("reward=shuffled_calibrated", "reward@reward.source=random_potential", "reward.source.weight=0.0"),
            "reward: source .*logits.*, got RandomPotentialReward",
        ),
        (
            ("reward=critic_calibrated", "rollout=dynamic", "advantage=one_step"),
            "rollout: .*CalibratedReward .*rollout=engine",
        ),
        (("reward=monte_carlo",), "reward: MonteCarloReward .*rollout=vineppo"),
        (("experiment=llama_critic_released", "critic=joint"), r"reward\.critic: JointCritic .*critic=text"),
        (("experiment=llama_critic_released", "critic=numeric_v2"), r"reward\.critic: NumericV2 .*critic=text"),
    ],
)
def test_check_parts_rejects_mismatched_parts_in_one_line(overrides: tuple[str, ...], named: str) -> None:
    with pytest.raises(AssemblyError, match=named) as error:
        check_parts(experiment(*overrides))
    assert "\n" not in str(error.value)


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


def test_critic_values_states_reads_critic_configuration() -> None:
    found = {
        name: critic_values_states(experiment(f"critic={name}").critic) for name in ("joint", "text", "numeric_v1")
    }
    assert found == {"joint": True, "text": False, "numeric_v1": False}
    assert critic_values_states(experiment("critic=joint_ensemble").critic)
    ensemble = deepcopy(experiment("critic=joint_ensemble").critic)
    ensemble.member._target_ = experiment("critic=text").critic._target_
    assert not critic_values_states(ensemble)


def online_experiment(*overrides: str) -> DictConfig:
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
    check_parts(online_experiment(*overrides))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("reward=verifier",), "online: trains the one critic of the reward, which has 0: use reward=critic"),
        (("critic=text",), "TextCritic reads more: use critic=joint or critic=numeric_v2, or online=none"),
        (("critic=joint_ensemble",), "online: .*EnsembleCritic .*: use critic=joint or"),
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
        check_parts(online_experiment(*overrides))


def test_outcome_critic_fits_its_experiment_and_rejects_critics_of_lines() -> None:
    check_parts(composed("experiment=llama_critic_outcomes"))
    check_online(composed("experiment=llama_critic_outcomes", "critic=joint"))
    for other in ("critic=text", "critic=joint_ensemble", "online.lessons.batch_size=0", "online.buffer_batches=0"):
        with pytest.raises(AssemblyError, match="online"):
            check_online(composed("experiment=llama_critic_outcomes", other))


def test_critic_under_unknown_attribute_of_reward_is_rejected() -> None:
    """A user's own reward may hold another one under a name that the check does not search, here ``inner``."""
    config = deepcopy(online_experiment())
    config.reward = {"_target_": "contrastive_reasoning.rewards.ShuffledReward", "inner": config.reward}
    with pytest.raises(AssemblyError, match=r"online: finds no critic within ShuffledReward, .* use reward=critic"):
        check_online(config)


def test_task_without_target_range_is_rejected() -> None:
    with pytest.raises(AssemblyError, match=r"online: .*task\.target_range"):
        check_online(online_experiment("task=gsm8k", "online.task=null"))
