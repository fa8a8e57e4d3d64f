"""The main jobs share their settings with oracle and baseline; the credit is the one that gained in its study."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from experiments.assemble import AssemblyError, build
from experiments.config.override_checks import override_error
from experiments.jobs.study_plan import find_study
from experiments.stages.building import check_arguments, check_parts
from experiments.stages.experiment import closing_line, comparing
from tests.config_kit import SCALES, composed
from tests.study_records import leaves

SHARED = [
    "seed",
    "task",
    "policy",
    "prompts",
    "rollout",
    "online",
    "objective",
    "correction",
    "optimizer",
    "budget",
    "suite",
    "trainer",
]
"""Equal in main job, oracle and baseline, without the critic's own training. Reward and advantage differ."""
CREDIT = ("reward.", "advantage.", "objective.", "loss.", "module.")
FAMILIES = ("llama", "qwen")


def values(config: Any, keys: list[str]) -> dict[str, Any]:
    whole: Any = OmegaConf.to_container(config, resolve=True)
    del whole["budget"]["critic"]
    return {key: whole[key] for key in keys}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("family", FAMILIES)
def test_critic_oracle_and_baseline_share_start_penalty_and_batches(family: str, scale: str) -> None:
    baseline, *others = (
        composed(f"experiment={family}_{name}", f"scale={scale}")
        for name in ("baseline", "critic", "critic_exact", "oracle")
    )
    for config in (baseline, *others):
        assert values(config, SHARED) == values(baseline, SHARED)
        assert config.module.reference == baseline.policy
    assert [config.baseline for config in others] == [baseline.name] * 3
    assert baseline.objective.kl_weight > 0


def test_critic_with_exact_labels_has_credit_settings_of_its_study() -> None:
    study = find_study("countdown_credit_kl")
    overrides = study.arms[study.primary.arm].overrides
    ours, expected = leaves("experiment=llama_critic_exact"), leaves(*study.common, *overrides)
    credit = {path for path in ours | expected if path.startswith(CREDIT) and ".task." not in path}
    credit.remove("reward.refit_every")  # since then every fourth batch
    assert {path: ours.get(path) for path in credit} == {path: expected.get(path) for path in credit}
    assert len(credit) > 30


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("family", FAMILIES)
def test_contrastive_and_exact_critic_differ_in_supervision_and_loss_alone(family: str, scale: str) -> None:
    ours, exact = (leaves(f"experiment={family}_{name}", f"scale={scale}") for name in ("critic", "critic_exact"))
    differing = {path for path in ours | exact if ours.get(path) != exact.get(path)}
    kept = {
        path for path in differing if not path.startswith(("datamodule.", "loss._target_", "pretraining.loss", "name"))
    }
    assert not kept
    plays, labels = (composed(f"experiment={family}_{name}").datamodule for name in ("critic", "critic_exact"))
    for key in ("numbers", "number_range", "target_range"):
        assert plays.game[key] == labels[key], "the same states"
    assert plays.depth_shares == labels.depth_shares


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("family", FAMILIES)
def test_outcome_critic_differs_from_main_job_in_its_supervision_alone(family: str, scale: str) -> None:
    """It has no pretraining, so pretraining's data, loss and budget differ, too."""
    names = ("critic", "critic_outcomes")
    main, ours = (leaves(f"experiment={family}_{name}", f"scale={scale}") for name in names)
    differing = {path for path in main | ours if main.get(path) != ours.get(path)}
    supervision = ("datamodule.", "loss._target_", "pretraining.", "budget.critic.", "online.", "stages.")
    assert {path for path in differing if not path.startswith(supervision)} == {
        "reward.source.checkpoint",
        "reward.refit_every",  # the network changes after every batch
    }
    assert "critic" not in composed(f"experiment={family}_critic_outcomes").stages
    assert composed(f"experiment={family}_critic_outcomes").baseline == f"{family}_baseline"


def test_comparing_returns_both_commands() -> None:
    assert comparing("llama_baseline", "llama_critic") == (
        "llama_critic: its baseline is make exp name=llama_baseline; to compare the two: "
        "make compare name='llama_baseline llama_critic'"
    )


def test_finished_run_names_comparison_except_after_a_trial() -> None:
    critic, baseline = composed("experiment=llama_critic"), composed("experiment=llama_baseline")
    assert closing_line(critic, ["experiment=llama_critic"]) == comparing("llama_baseline", "llama_critic")
    trial = closing_line(critic, ["experiment=llama_critic", "debug=fast"])
    assert trial == "llama_critic: debug=fast tries the code; its figures mean nothing"
    assert closing_line(baseline, []) is None
    assert closing_line(composed("experiment=llama_critic", "stages=[critic]"), []) is None


def test_main_job_rejects_objective_without_kl_penalty() -> None:
    with pytest.raises(AssemblyError, match=r"^objective\.kl_weight: no such key"):
        check_arguments(composed("experiment=llama_critic", "objective=dapo"))


@pytest.mark.parametrize("objective", ["gspo", "cispo", "gmpo", "dr_grpo"])
def test_main_job_rejects_objective_whose_kl_penalty_has_no_estimator(objective: str) -> None:
    overrides = ["experiment=llama_critic", f"objective={objective}"]
    with pytest.raises(AssemblyError, match=r"objective\.kl_weight=0\.03 .*objective\.kl "):
        check_parts(composed(*overrides))
    for mended in ("objective.kl_weight=0.0", "objective.kl={_target_:contrastive_reasoning.objectives.K2}"):
        assert override_error([*overrides, mended]) is None
        build(composed(*overrides, mended), "objective")
