"""``build`` reports an error in one sentence that begins with the key."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from experiments.assemble import AssemblyError, build


def build_error(target: str, **arguments: object) -> str:
    with pytest.raises(AssemblyError) as raised:
        build(OmegaConf.create({"reward": {"function": {"_target_": target, **arguments}}}), "reward")
    return str(raised.value)


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("my_missing_module.f", "ModuleNotFoundError"),
        ("contrastive_reasoning.tasks.examples.same_txt", "same_txt"),
    ],
)
def test_build_error_names_key_target_and_import_cause(target: str, cause: str) -> None:
    message = build_error(target, _partial_=True)
    assert message.startswith("reward: ")
    assert target in message
    assert cause in message
    assert "\n" not in message


def test_build_error_contains_message_of_constructor() -> None:
    assert build_error("contrastive_reasoning.rewards.OverlongReward", max_tokens=0, cache_share=0.5) == (
        "reward: max_tokens must be at least 1, got 0"
    )
