from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import get_args

import pytest
from hydra.utils import get_object
from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT
from lightning.pytorch.accelerators import AcceleratorRegistry
from omegaconf import OmegaConf

from contrastive_reasoning.critics import encoder
from contrastive_reasoning.losses.completions import LEVELS
from contrastive_reasoning.policies import load
from contrastive_reasoning.rewards import ramped_critic
from contrastive_reasoning.rewards.clipo import POSITIVES
from contrastive_reasoning.tasks import problem_set, rows
from contrastive_reasoning.tasks.arithmetic.task import TestSet as ArithmeticTest
from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown import task, trace
from experiments.config.composition import critic_checkpoints
from experiments.config.contradictions import CHOICES, contradiction
from lightning_modules.optim import Schedule
from tests.config_kit import composed

DOT, COSINE = (f"critic.similarity._target_=contrastive_reasoning.losses.{name}" for name in ("dot", "cosine"))


def objection(*overrides: str) -> str | None:
    return contradiction(composed("experiment=llama_baseline", *overrides))


def test_adapters_are_one_option() -> None:
    assert objection("adapter=lora", "policy.lora.rank=4") is None
    assert objection("policy.lora=lora") == (
        "policy.lora=lora: it takes null or the keys of a LoRA; choose adapter=lora, and set policy.lora.rank"
    )


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("budget.grpo.steps=-1", "budget.grpo.steps must be a whole number of at least 0, got -1"),
        ("stages=[warm_start,gpro]", "stages: no stage 'gpro'; did you mean 'grpo'?"),
        ("name='../x'", "name='../x' begins with a dot"),
        ("arm=a/b", "arm='a/b' holds /, and must be one plain name"),
        ("reward.checkpoint=nowhere reward=critic", "reward.checkpoint=nowhere: no critic there (critic.json is"),
        ("rollout.group_size=1", "rollout.group_size must be a whole number of at least 2"),
        ("stages=[grpo,warm_start]", "stages must be some of"),
        ("reward=critic", "the reward needs a critic: add 'critic' to stages or give reward.checkpoint=FOLDER"),
        (
            "module=grpo objective=grpo_full_kl",
            "the objective compares with a reference over the whole vocabulary: choose module=grpo",
        ),
        (
            "module.shard_reference=true module.offload_reference=true",
            "module.shard_reference and module.offload_reference: a reference is kept by one of them, got both",
        ),
        (
            "policy.pretrained=embedded:qwen_cuontdown",
            "policy.pretrained=embedded:qwen_cuontdown: no such policy comes with the package; "
            "did you mean 'embedded:qwen_countdown'?",
        ),
        ("trainer.devices=0", "trainer.devices must be how many (CUDA_VISIBLE_DEVICES says which), got 0"),
        ("trainer.devices=[0,1]", "trainer.devices must be how many (CUDA_VISIBLE_DEVICES says which), got [0, 1]"),
        ("trainer.devices=auto trainer.accelerator=gpu", "trainer.devices must be how many (CUDA_VISIBLE_DEVICES says"),
        ("trainer.num_nodes=0", "trainer.num_nodes must be a whole number of at least 1, got 0"),
        (
            "trainer.num_nodes=2",
            "trainer.num_nodes=2: start the run by torchrun on every node, see docs/gpus_and_clusters.md",
        ),
        (
            "trainer.devices=3",
            "budget.grpo.problems=64 cannot be shared out evenly over ranks (3) × mini-batches (1): take a",
        ),
    ],
)
def test_a_contradiction_is_one_sentence(override: str, sentence: str) -> None:
    said = objection(*override.split())
    assert said is not None
    assert said.startswith(sentence)
    assert "\n" not in said


VLLM = [
    *("rollout.engine._target_=contrastive_reasoning.rollout.vllm.VLLMEngine", "+rollout.engine.url=u"),
    *(f"+rollout.engine.{key}=1" for key in ("sleep_level", "concurrency", "timeout", "retries")),
    "+rollout.engine.weights_folder=w",
    "trainer.devices=2",
]


@pytest.mark.parametrize(("rollout", "name"), [("dynamic", "DynamicSampling"), ("vineppo", "VinePPORollouts")])
def test_ranks_that_draw_alone_do_not_ask_one_server(rollout: str, name: str) -> None:
    said = objection(f"rollout={rollout}", *VLLM)
    assert said is not None
    assert said.startswith(f"rollout: {name} cannot draw from a vLLM server on 2 ranks")
    assert objection(f"rollout={rollout}", *VLLM[:-1]) is None
    assert objection(f"rollout={rollout}", VLLM[-1]) is None
    assert objection("rollout=vllm", VLLM[-1]) is None


@pytest.mark.parametrize("key", ["name", "arm"])
@pytest.mark.parametrize("name", ["/tmp/x", "..", '"a\\tb"'])
def test_a_name_that_would_leave_its_folder_is_one_sentence(key: str, name: str) -> None:
    said = objection(f"{key}={name}")
    assert said is not None
    assert said.startswith(f"{key}='")
    assert "\n" not in said


def test_a_secret_of_the_environment_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "sentinel-0123456789")
    monkeypatch.setenv("SCRATCH", "/scratch/of/sentinel-0123456789")
    wanted = "holds the environment's HF_TOKEN: a configuration is written into every run folder; what needs it reads"
    for key, value in {
        "output_dir": "${oc.env:HF_TOKEN}",
        "policy.pretrained": "'${oc.env:HF_TOKEN,none}'",
        "task.train_file": "/data/sentinel-0123456789/a.jsonl",
        "task.longproc_dir": "'${oc.env:SCRATCH}/x'",
    }.items():
        said = objection(f"{key}={value}")
        assert said is not None
        assert wanted in said
        assert "sentinel" not in said
    monkeypatch.setenv("SCRATCH", "/scratch/of/mine")
    assert objection("output_dir=${oc.env:SCRATCH}/x") is None


@pytest.mark.parametrize("devices", ["1", "[1]", "auto", "2", "'2'"])
def test_devices_are_counted(devices: str) -> None:
    assert objection(f"trainer.devices={devices}") is None


def test_ranks_are_as_many_as_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert objection("trainer.devices=2", "trainer.num_nodes=2") is None
    said = objection("trainer.devices=2")
    assert said == "4 ranks were started, but trainer.devices=2 and trainer.num_nodes=1 are 2"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder of a critic as its stage leaves it, but for the weights, which nothing here reads."""
    made = composed("experiment=llama_critic_level", "critic=numeric_v2", COSINE)
    folder = tmp_path / "critic"
    folder.mkdir()
    described = {"class": "a", "config": OmegaConf.to_container(made.critic, resolve=True), "frozen": []}
    (folder / "critic.json").write_text(json.dumps(described))
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
def test_a_critic_that_is_described_otherwise_is_refused(
    trained: Path, overrides: tuple[str, ...], sentence: str | None
) -> None:
    own = () if DOT in overrides else (COSINE,)
    said = objection("reward=critic", "critic=numeric_v2", f"reward.checkpoint={trained}", *own, *overrides)
    assert (said is None) == (sentence is None)
    if said is not None and sentence is not None:
        assert said.startswith(f"reward.checkpoint={trained}: {sentence}")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"class": 1}'])
def test_a_description_that_says_nothing_is_left_to_who_loads_it(trained: Path, text: str) -> None:
    (trained / "critic.json").write_text(text)
    assert objection("reward=critic", f"reward.checkpoint={trained}", "loss.temperature=0.1") is None


def test_a_critic_among_rewards_that_is_called_so_is_asked_too() -> None:
    config = deepcopy(composed("experiment=llama_critic_level"))
    summed = {
        "_target_": "contrastive_reasoning.rewards.WeightedSum",
        "rewards": {"critic": config.reward},
        "weights": {},
    }
    config.reward = OmegaConf.create(summed)
    assert list(critic_checkpoints(config.reward)) == [("reward.rewards.critic", None)]
    config.stages = ["grpo"]
    said = contradiction(config)
    assert said is not None
    assert said.endswith("add 'critic' to stages or give reward.rewards.critic.checkpoint=FOLDER")


OF_THE_CODE = {
    "TextCritic.style": trace.WORDINGS,
    "load_encoder.dtype": encoder.DTYPES,
    "problem_sets.on_bad": get_args(rows.OnBad),
    "problem_sets.accept": get_args(problem_set.Accept),
    "load_policy.weights_dtype": load.DTYPES,
    "load_policy.compute_dtype": (*load.DTYPES, load.AUTO),
    "load_policy.kernels": load.KERNELS,
    "CLIPOReward.level": LEVELS,
    "CLIPOReward.positives": POSITIVES,
    "RampedCriticReward.goals": ramped_critic.GOALS,
    "AnswerTask.judge": get_args(problem_set.Judge),
    "AnswerTask.on_bad": get_args(rows.OnBad),
    "AnswerTask.accept": get_args(problem_set.Accept),
    "ArithmeticTask.test": get_args(ArithmeticTest),
    "CountdownTask.style": get_args(trace.Style),
    "CountdownTask.train": get_args(task.TrainSource),
    "CountdownTask.test": get_args(task.Source),
    "CountdownTask.on_bad": get_args(rows.OnBad),
    "FunctionTask.on_bad": get_args(rows.OnBad),
    "stand_in_task.source": get_args(problem_set.Source),
    "Setting.split": get_args(Split),
    "stand_in_task.accept": get_args(problem_set.Accept),
    "Trainer.accelerator": {"auto", "gpu", *AcceleratorRegistry.available_accelerators()},
    "Trainer.precision": {str(word) for kind in get_args(_PRECISION_INPUT) for word in get_args(kind)},
    "AdamW.schedule": get_args(Schedule),
}


def test_the_words_are_those_of_the_code() -> None:
    ours = {
        f"{part.rpartition('.')[2]}.{key}": set(words) for part, keys in CHOICES.items() for key, words in keys.items()
    }
    assert ours == {key: set(words) for key, words in OF_THE_CODE.items()}
    assert all(callable(get_object(part)) for part in CHOICES), "each is there by this name"


@pytest.mark.parametrize(("critic", "name"), [("joint", "JointCritic"), ("numeric_v2", "NumericV2")])
def test_a_reward_that_learns_from_searches_needs_a_critic_that_reads_their_lines(critic: str, name: str) -> None:
    said = contradiction(composed("experiment=llama_critic_released", f"critic={critic}"))
    wanted = f"{name} reads no lines of a search: choose critic=number_embedding or critic=text"
    assert said == f"reward.critic: {wanted}"
    for fitting in ("number_embedding", "text"):
        assert contradiction(composed("experiment=llama_critic_released", f"critic={fitting}")) is None
