"""The main job and its partners: one bed, and the form of credit that gained in the study of it."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from experiments.config.override_checks import override_error
from experiments.stages.experiment import comparing
from experiments.studies.plan import find_study
from tests.config_kit import SCALES, composed
from tests.study_records import leaves

BED = [
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
"""What partners share, but for the critic's own training. The reward and the advantage are the method."""
CREDIT = ("reward.", "advantage.", "objective.", "loss.", "module.")
FAMILIES = ("llama", "qwen")


def values(config: Any, keys: list[str]) -> dict[str, Any]:
    whole: Any = OmegaConf.to_container(config, resolve=True)
    del whole["budget"]["critic"]
    return {key: whole[key] for key in keys}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("family", FAMILIES)
def test_critic_oracle_and_baseline_share_start_penalty_and_batches(family: str, scale: str) -> None:
    baseline, critic, oracle = (
        composed(f"experiment={family}_{name}", f"scale={scale}") for name in ("baseline", "critic", "oracle")
    )
    assert values(critic, BED) == values(oracle, BED) == values(baseline, BED)
    assert critic.baseline == oracle.baseline == baseline.name
    assert baseline.module.reference == critic.module.reference == oracle.module.reference == baseline.policy
    assert baseline.objective.kl_weight > 0


def test_the_main_job_gives_the_credit_of_the_study_that_it_rests_on() -> None:
    study = find_study("countdown_credit_kl")
    overrides = study.arms[study.primary.arm].overrides
    ours, its = leaves("experiment=llama_critic"), leaves(*study.common, *overrides)
    credit = {path for path in ours | its if path.startswith(CREDIT) and ".task." not in path}
    assert {path: ours.get(path) for path in credit} == {path: its.get(path) for path in credit}
    assert len(credit) > 30


def test_the_last_line_names_the_two_commands() -> None:
    assert comparing("llama_baseline", "llama_critic") == (
        "llama_critic: its baseline is make exp name=llama_baseline; to compare the two: "
        "make compare name='llama_baseline llama_critic'"
    )


def test_an_objective_without_a_penalty_is_refused_under_the_main_job() -> None:
    sentence = override_error(["experiment=llama_critic", "objective=dapo"])
    assert sentence is not None
    assert "objective.kl_weight" in sentence
    assert "\n" not in sentence
    assert override_error(["experiment=llama_critic", "objective=gspo"]) is None
