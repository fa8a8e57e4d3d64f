"""What cannot be built is said in one sentence that begins with the key."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from experiments.assemble import AssemblyError, build


def sentence_of(target: str, **arguments: object) -> str:
    with pytest.raises(AssemblyError) as refused:
        build(OmegaConf.create({"reward": {"function": {"_target_": target, **arguments}}}), "reward")
    return str(refused.value)


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("my_missing_module.f", "ModuleNotFoundError"),
        ("contrastive_reasoning.tasks.examples.same_txt", "same_txt"),
    ],
)
def test_a_function_that_cannot_be_imported_is_named_with_its_key_and_the_cause(target: str, cause: str) -> None:
    said = sentence_of(target, _partial_=True)
    assert said.startswith("reward: ")
    assert target in said
    assert cause in said
    assert "\n" not in said


def test_a_part_that_refuses_a_value_says_its_own_sentence() -> None:
    assert sentence_of("contrastive_reasoning.rewards.OverlongReward", max_tokens=0, cache_share=0.5) == (
        "reward: max_tokens must be at least 1, got 0"
    )
