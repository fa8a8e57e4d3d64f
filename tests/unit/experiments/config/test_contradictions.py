from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import get_args

import pytest
from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT
from omegaconf import OmegaConf

from experiments.config.composition import critic_checkpoints
from experiments.config.contradictions import contradiction, differing
from tests.config_kit import composed

DOT, COSINE = (f"critic.similarity._target_=contrastive_reasoning.losses.{name}" for name in ("dot", "cosine"))


def contradiction_of(*overrides: str) -> str | None:
    return contradiction(composed("experiment=llama_baseline", *overrides))


def test_adapter_name_in_policy_lora_is_rejected() -> None:
    assert contradiction_of("adapter=lora", "policy.lora.rank=4") is None
    for value in ("lora", "{rank:4}"):
        message = contradiction_of(f"policy.lora={value}") or ""
        assert message.startswith("policy.lora=")
        assert "choose adapter=lora, and set policy.lora.rank" in message


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork", "ddp_notebook"])
def test_strategy_that_starts_ranks_from_this_process_is_rejected(strategy: str) -> None:
    assert (contradiction_of(f"trainer.strategy={strategy}") or "").startswith(f"trainer.strategy={strategy}: ")
    assert contradiction_of("trainer.strategy=ddp") is None


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("budget.grpo.steps=-1", "budget.grpo.steps must be a whole number of at least 0, got -1"),
        ("stages=[warm_start,gpro]", "stages: no stage 'gpro'; did you mean 'grpo'?"),
        ("name='../x'", "name='../x' must be one plain name"),
        ("arm=a/b", "arm='a/b' must be one plain name"),
        ("reward.checkpoint=nowhere reward=critic", "reward.checkpoint=nowhere: no critic there (critic.json is"),
        ("stages=[grpo,warm_start]", "stages must be some of"),
        ("reward=critic", "the reward needs a critic: add 'critic' to stages or give reward.checkpoint=FOLDER"),
        (
            "module.shard_reference=true module.offload_reference=true",
            "module.shard_reference and module.offload_reference: ",
        ),
        (
            "policy.pretrained=embedded:qwen_cuontdown",
            "policy.pretrained=embedded:qwen_cuontdown: no such policy comes with the package; "
            "did you mean 'embedded:qwen_countdown'?",
        ),
        ("trainer.devices=0", "trainer.devices must be a number of devices, got 0; CUDA_VISIBLE_DEVICES selects them"),
        (
            "trainer.devices=[0,1]",
            "trainer.devices must be a number of devices, got [0, 1]; CUDA_VISIBLE_DEVICES selects them",
        ),
        (
            "trainer.devices=auto trainer.accelerator=gpu",
            "trainer.devices must be a number of devices, got auto; CUDA_VISIBLE_DEVICES ",
        ),
        ("trainer.num_nodes=0", "trainer.num_nodes must be a whole number of at least 1, got 0"),
        (
            "trainer.num_nodes=2",
            "trainer.num_nodes=2: start the run by torchrun on every node, see docs/gpus_and_clusters.md",
        ),
        (
            "trainer.devices=3",
            "budget.grpo.problems=64 cannot be divided evenly over ranks (3) × mini-batches (1): take a",
        ),
    ],
)
def test_contradiction_returns_one_sentence(override: str, sentence: str) -> None:
    message = contradiction_of(*override.split())
    assert message is not None
    assert message.startswith(sentence)
    assert "\n" not in message


@pytest.mark.parametrize("key", ["name", "arm"])
@pytest.mark.parametrize("name", ["/tmp/x", "..", '"a\\tb"'])
def test_name_and_arm_must_be_plain_folder_names(key: str, name: str) -> None:
    message = contradiction_of(f"{key}={name}")
    assert message is not None
    assert message.startswith(f"{key}='")
    assert "\n" not in message


def test_value_with_environment_secret_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "sentinel-0123456789")
    monkeypatch.setenv("SCRATCH", "/scratch/of/sentinel-0123456789")
    expected = "holds the environment's HF_TOKEN: a configuration is written into every run folder; what needs it reads"
    for key, value in {
        "output_dir": "${oc.env:HF_TOKEN}",
        "policy.pretrained": "'${oc.env:HF_TOKEN,none}'",
        "task.train_file": "/data/sentinel-0123456789/a.jsonl",
        "task.longproc_dir": "'${oc.env:SCRATCH}/x'",
    }.items():
        message = contradiction_of(f"{key}={value}")
        assert message is not None
        assert expected in message
        assert "sentinel" not in message
    monkeypatch.setenv("SCRATCH", "/scratch/of/mine")
    assert contradiction_of("output_dir=${oc.env:SCRATCH}/x") is None


@pytest.mark.parametrize("devices", ["1", "[1]", "auto", "2", "'2'"])
def test_valid_device_counts_are_accepted(devices: str) -> None:
    assert contradiction_of(f"trainer.devices={devices}") is None


def test_world_size_must_match_configured_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert contradiction_of("trainer.devices=2", "trainer.num_nodes=2") is None
    message = contradiction_of("trainer.devices=2")
    assert message == "4 ranks were started, but trainer.devices=2 and trainer.num_nodes=1 are 2"


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
    ("overrides", "sentence"),
    [
        ((DOT,), f"that critic was trained with {COSINE}, and this configuration describes one with contrastive"),
        ((), "that critic was trained with loss.temperature=0.1, and this configuration reads its values with 1.0"),
        (("loss.temperature=0.1",), None),
        (("loss.temperature=0.1", "critic.seed=7"), None),
        (("reward.temperature=0.5",), None),
    ],
    ids=["another similarity", "another τ", "the same", "another seed", "a τ that was chosen"],
)
def test_critic_checkpoint_with_other_settings_is_rejected(
    trained: Path, overrides: tuple[str, ...], sentence: str | None
) -> None:
    own = () if DOT in overrides else (COSINE,)
    message = contradiction_of("reward=critic", "critic=numeric_v2", f"reward.checkpoint={trained}", *own, *overrides)
    assert (message is None) == (sentence is None)
    if message is not None and sentence is not None:
        assert message.startswith(f"reward.checkpoint={trained}: {sentence}")


@pytest.mark.parametrize(("name", "fits"), [("encoder", True), ("another", False)])
def test_published_critic_fits_a_local_model_of_the_same_name(name: str, fits: bool) -> None:
    """Publishing cuts the path of its encoder to the last part."""
    published, here = ({"encoder": {"pretrained": path}} for path in ("…/encoder", f"/models/{name}"))
    assert (not [*differing(published, here)]) == fits


@pytest.mark.parametrize("text", ["", "[]", "{", '{"class": 1}'])
def test_incomplete_critic_description_is_no_contradiction(trained: Path, text: str) -> None:
    (trained / "critic.json").write_text(text)
    assert contradiction_of("reward=critic", f"reward.checkpoint={trained}", "loss.temperature=0.1") is None


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["online=none"], "online=outcomes"),
        (["online=refresh"], "online=outcomes"),
        (["reward.warmup_steps=0"], "reward.warmup_steps"),
    ],
)
def test_fresh_critic_that_is_not_fitted_before_use_is_rejected(overrides: list[str], key: str) -> None:
    assert contradiction(composed("experiment=llama_critic_outcomes")) is None
    message = contradiction(composed("experiment=llama_critic_outcomes", *overrides))
    assert message is not None
    assert message.startswith("reward.source.checkpoint=fresh: ")
    assert key in message


def test_reward_named_critic_in_weighted_sum_needs_checkpoint() -> None:
    config = deepcopy(composed("experiment=llama_critic_level"))
    summed = {
        "_target_": "contrastive_reasoning.rewards.WeightedSum",
        "rewards": {"critic": config.reward},
        "weights": {},
    }
    config.reward = OmegaConf.create(summed)
    assert list(critic_checkpoints(config.reward)) == [("reward.rewards.critic", None)]
    config.stages = ["grpo"]
    message = contradiction(config)
    assert message is not None
    assert message.endswith("add 'critic' to stages or give reward.rewards.critic.checkpoint=FOLDER")


PRECISIONS = [str(word) for kind in get_args(_PRECISION_INPUT) for word in get_args(kind)]


@pytest.mark.parametrize("value", PRECISIONS)
@pytest.mark.parametrize("stage", ["warm_start", "grpo"])
def test_trainer_precision_other_than_float32_is_rejected_for_every_stage(value: str, stage: str) -> None:
    message = contradiction_of(f"trainer.precision={value}", f"stages=[{stage}]")
    if value in ("32", "32-true"):
        assert message is None
    else:
        assert (message or "").startswith(f"trainer.precision={value}: must be 32-true")
        assert "policy.compute_dtype" in (message or "")


def test_precision_of_trainer_by_another_name_is_rejected() -> None:
    message = contradiction_of("trainer._target_=lightning.pytorch.Trainer", "trainer.precision=bf16-mixed")
    assert (message or "").startswith("trainer.precision=bf16-mixed: ")


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=llama_baseline", "module=grpo"],
        ["experiment=grpo_laptop", "objective.kl_weight=0.1"],
        ["experiment=grpo_laptop", "objective=grpo_full_kl"],
    ],
)
def test_kl_weight_without_reference_is_rejected(overrides: list[str]) -> None:
    message = contradiction(composed(*overrides))
    assert re.match(r"objective\.kl_weight=0\.\d+ .*module=grpo_reference", message or "")
    for more in ("objective.kl_weight=0", "module=grpo_reference", "stages=[warm_start]"):
        assert contradiction(composed(*overrides, more)) is None


@pytest.mark.parametrize("key", ["name", "arm", "baseline"])
def test_bool_in_place_of_a_name_is_rejected(key: str) -> None:
    assert (contradiction_of(f"{key}=false") or "").startswith(f"{key}=False")
    assert contradiction_of(f"{key}=no") is None, "a text for Hydra's command line"


def test_every_seed_from_zero_to_63_bits_is_valid() -> None:
    for seed in (0, 20261128123456, 2**63 - 1):
        assert contradiction_of(f"seed={seed}") is None
    for seed in (-1, 2**63, 10**23):
        assert (contradiction_of(f"seed={seed}") or "").startswith(f"seed={seed}")


def test_path_of_critic_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "critic").mkdir()
    (tmp_path / "critic" / "critic.json").write_text("{}")
    assert contradiction_of("reward=critic", 'reward.checkpoint="~/critic"') is None
