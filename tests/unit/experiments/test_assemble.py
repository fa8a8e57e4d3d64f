"""``build`` reports an error in one sentence that begins with the key."""

from __future__ import annotations

import re

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


def test_build_error_names_key_and_argument_of_constructor() -> None:
    message = build_error("contrastive_reasoning.rewards.OverlongReward", max_tokens=0, cache_share=0.5)
    assert re.fullmatch("reward: max_tokens .*0", message)


@pytest.mark.parametrize(("source", "suffix"), [("budget", r" \(max_tokens is budget\)"), ("max_tokens", "")])
def test_build_error_names_source_of_another_name(source: str, suffix: str) -> None:
    target = "contrastive_reasoning.rewards.OverlongReward"
    reward = {"_target_": target, "max_tokens": f"${{{source}}}", "cache_share": 0.5}
    with pytest.raises(AssemblyError, match=f"^reward: max_tokens .*0{suffix}$"):
        build(OmegaConf.create({source: 0, "reward": reward}), "reward")
