"""Contradictions with the environment, the started ranks and a critic's own description."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments.config.contradictions import contradiction, differing
from tests.config_kit import composed

DOT, COSINE = (f"critic.similarity._target_=contrastive_reasoning.losses.{name}" for name in ("dot", "cosine"))


def contradiction_of(*overrides: str) -> str | None:
    return contradiction(composed("experiment=llama_baseline", *overrides))


def test_value_with_environment_secret_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "sentinel-0123456789")
    monkeypatch.setenv("SCRATCH", "/scratch/of/sentinel-0123456789")
    for key, value in {
        "output_dir": "${oc.env:HF_TOKEN}",
        "policy.pretrained": "'${oc.env:HF_TOKEN,none}'",
        "task.train_file": "/data/sentinel-0123456789/a.jsonl",
        "task.longproc_dir": "'${oc.env:SCRATCH}/x'",
    }.items():
        message = contradiction_of(f"{key}={value}") or ""
        assert message.startswith(f"{key} holds the environment's HF_TOKEN: ")
        assert "sentinel" not in message
    monkeypatch.setenv("SCRATCH", "/scratch/of/mine")
    assert contradiction_of("output_dir=${oc.env:SCRATCH}/x") is None


def test_world_size_must_match_configured_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert contradiction_of("trainer.devices=2", "trainer.num_nodes=2") is None
    message = contradiction_of("trainer.devices=2") or ""
    assert re.match(r"4 ranks .*trainer\.devices=2 .*trainer\.num_nodes=1 .*2$", message)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Returns the folder of a critic as its stage writes it, without the weights, which nothing here reads."""
    config = composed("experiment=llama_critic_level", "critic=numeric_v2", COSINE)
    folder = tmp_path / "critic"
    folder.mkdir()
    description = {"class": "a", "config": OmegaConf.to_container(config.critic, resolve=True), "frozen": []}
    (folder / "critic.json").write_text(json.dumps(description))
    (tmp_path / "config.yaml").write_text("loss: {temperature: 0.1}\n")
    return folder


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ((DOT,), f"trained with {COSINE}, .* contrastive_reasoning"),
        ((), r"trained with loss\.temperature=0\.1, .*1\.0"),
        (("loss.temperature=0.1",), None),
        (("loss.temperature=0.1", "critic.seed=7"), None),
        (("reward.temperature=0.5",), None),
    ],
    ids=["another similarity", "another τ", "the same", "another seed", "a τ that was chosen"],
)
def test_critic_checkpoint_with_other_settings_is_rejected(
    trained: Path, overrides: tuple[str, ...], named: str | None
) -> None:
    own = () if DOT in overrides else (COSINE,)
    message = contradiction_of("reward=critic", "critic=numeric_v2", f"reward.checkpoint={trained}", *own, *overrides)
    assert (message is None) == (named is None)
    assert re.match(rf"reward\.checkpoint={trained}: .*{named}" if named else "", message or "")


@pytest.mark.parametrize(("name", "fits"), [("encoder", True), ("another", False)])
def test_published_critic_fits_a_local_model_of_the_same_name(name: str, fits: bool) -> None:
    """Publishing cuts the path of its encoder to the last part."""
    published, here = ({"encoder": {"pretrained": path}} for path in ("…/encoder", f"/models/{name}"))
    assert (not [*differing(published, here)]) == fits


@pytest.mark.parametrize("text", ["", "[]", "{", '{"class": 1}'])
def test_incomplete_critic_description_is_no_contradiction(trained: Path, text: str) -> None:
    (trained / "critic.json").write_text(text)
    assert contradiction_of("reward=critic", f"reward.checkpoint={trained}", "loss.temperature=0.1") is None


def test_reward_named_critic_in_weighted_sum_needs_checkpoint() -> None:
    config = deepcopy(composed("experiment=llama_critic_level"))
    target = "contrastive_reasoning.rewards.WeightedSum"
    config.reward = OmegaConf.create({"_target_": target, "rewards": {"critic": config.reward}, "weights": {}})
    config.stages = ["grpo"]
    assert (contradiction(config) or "").endswith("reward.rewards.critic.checkpoint=FOLDER")


def test_path_of_critic_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "critic").mkdir()
    (tmp_path / "critic" / "critic.json").write_text("{}")
    assert contradiction_of("reward=critic", 'reward.checkpoint="~/critic"') is None
