"""Every experiment at ``scale=paper`` fits with its documented trainer, and a CPU that is too slow is rejected."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from experiments.plan.__main__ import main
from experiments.plan.advice import CARD, ERROR, NODE, advice, refusal
from experiments.plan.learner import sharding_of
from experiments.plan.stages import GIB, LEFT_FREE, experiment_of
from experiments.schema import register
from tests.config_kit import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[4]
ROW = re.compile(r"^\| (?:[^`|]*: )?(`\w+`[^|]*) \| `(trainer=[^`]+)` \| ([\d, ]+) \|$", re.MULTILINE)
"""Rows of the table in docs/plan.md: experiments, trainer, GiB on each device (one number for all, or one each)."""
TRAINERS = [
    (name, trainer, float(memory))
    for names, trainer, numbers in ROW.findall((ROOT / "docs" / "plan.md").read_text(encoding="utf-8"))
    for name, memory in zip(re.findall(r"`(\w+)`", names), cycle(numbers.split(",")), strict=False)
]
register()


def config_of(*overrides: str) -> tuple[Any, dict[str, Any], str]:
    """Returns the configuration, the trainer's node and its name."""
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", list(overrides), return_hydra_config=True)
    node: Any = OmegaConf.to_container(config.trainer, resolve=True)
    return config, node, config.hydra.runtime.choices.trainer


def planned(*overrides: str) -> float:
    """Returns the GiB of the fullest moment on each device, as ``make plan`` computes it for these overrides."""
    config, node, name = config_of(*overrides)
    sharding = sharding_of(name, node, gpus=None)
    plan = experiment_of(config, on_cpu=False, devices=sharding.devices)
    return max((moment.total(on_cpu=False) for moment in plan.moments(sharding)), default=0) / GIB


@pytest.mark.parametrize("name", ["clipo_math", "grpo_math"])
def test_trainer_named_by_refusal_fits_track_ii_on_eight_gpus(name: str) -> None:
    config, node, trainer = config_of(f"experiment={name}", "scale=paper")
    sentence = refusal(config, trainer, node)
    assert sentence is not None
    found = re.fullmatch(
        rf"trainer=cpu: GRPO of {name} at this size would take [\d,]+ days on a CPU; "
        r"use (trainer=\w+) (trainer\.devices=8), which needs ([\d.]+) GiB on each of 8 GPUs \(make plan\)",
        sentence,
    )
    assert found is not None, sentence
    memory = planned(f"experiment={name}", "scale=paper", found[1], found[2])
    assert memory == pytest.approx(float(found[3]), abs=0.05)
    assert memory <= 72
    assert planned(f"experiment={name}", "scale=paper", found[1], found[2], "rollout.copy_weights=false") > memory
    assert planned(f"experiment={name}", "scale=paper", found[1], found[2], "module.shard_reference=false") > 72


@pytest.mark.whole
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_advised_trainer_fits_every_experiment_at_paper_scale(name: str) -> None:
    found = advice(config_of(f"experiment={name}", "scale=paper")[0])
    assert found is not None
    memory = planned(f"experiment={name}", "scale=paper", *found.overrides.split())
    assert memory == pytest.approx(found.memory)
    assert memory <= CARD * (1 - LEFT_FREE)
    documented = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    assert f"| `{found.overrides}` |" in documented


def test_advice_is_one_gpu_if_run_fits_and_ends_within_a_day() -> None:
    countdown, track = (
        advice(config_of(f"experiment={name}", "scale=paper")[0]) for name in ("llama_oracle", "grpo_gsm8k")
    )
    assert countdown is not None
    assert track is not None
    assert countdown.overrides == "trainer=gpu"
    assert track.overrides.endswith(f" trainer.devices={NODE}")


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=llama_oracle"],
        ["experiment=llama_oracle", "trainer=zero3"],
        ["experiment=clipo_math", "scale=paper", "policy.pretrained=nobody/nothing"],
        ["experiment=clipo_math", "scale=paper", "stages=[evaluate]"],
    ],
    ids=["laptop", "laptop on ranks", "of unknown shape", "without GRPO"],
)
def test_refusal_is_none_for_feasible_or_unknown_cost(overrides: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.plan.advice.host_memory", lambda: 1000.0)  # independent of this machine
    config, node, trainer = config_of(*overrides)
    assert refusal(config, trainer, node) is None


@pytest.mark.parametrize("name", ["clipo_math", "llama_critic"])
def test_plan_names_trainer_that_advice_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Track II fits with ZeRO-2 if nothing is left free: both must keep the same share free."""
    found = advice(config_of(f"experiment={name}", "scale=paper")[0])
    assert found is not None
    chosen = [f"experiment={name}", "scale=paper", f"gpus={found.sharding.devices}"]
    assert main([*chosen, "trainer=ddp"] if found.sharding.devices > 1 else chosen) == 0
    page = capsys.readouterr().out
    if found.sharding.devices > 1:
        assert f"with a tenth free: {found.overrides}, {found.memory:.1f} GiB; " in page
    else:
        assert f"fits: needs {found.memory:.1f} of 80 GiB" in page


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns a function that gives this machine a GPU of so many GiB."""

    def of(memory: float) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        properties = SimpleNamespace(total_memory=int(memory * GIB))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)

    return of


def test_gpu_with_too_little_memory_is_rejected_with_what_fits(card: Callable[[float], None]) -> None:
    chosen = ("experiment=llama_critic", "scale=gpu")
    config, node, trainer = config_of(*chosen)
    needs = planned(*chosen, "budget.grpo.microbatch_tokens=1")  # larger ones are halved when memory runs out
    assert needs < planned(*chosen)
    card(20.0)
    sentence = refusal(config, trainer, node)
    assert sentence is not None
    assert sentence.startswith(f"trainer=gpu: llama_critic needs {needs:.1f} GiB on a GPU, in grpo ")
    found = re.search(r" has 20\.0; the mildest of .*: (trainer=\w+ trainer\.devices=1), [\d.]+ GiB; ", sentence)
    assert found is not None
    for fitting in (found[1], "adapter=lora", "policy=smollm2"):
        config, node, trainer = config_of(*chosen, *fitting.split())
        assert refusal(config, trainer, node) is None, fitting
    config, node, trainer = config_of(*chosen)
    card(needs - 0.1)
    with pytest.warns(UserWarning, match=r"llama_critic needs [\d.]+ GiB on a GPU"):  # within the error of the plan
        assert refusal(config, trainer, node) is None
    card(needs + 0.1)
    assert refusal(config, trainer, node) is None


def test_several_gpus_are_planned_with_the_micro_batch_that_is_set(card: Callable[[float], None]) -> None:
    """Only a single device halves it."""
    chosen = ("experiment=llama_critic", "scale=gpu", "trainer=ddp", "trainer.devices=2")
    smallest = "budget.grpo.microbatch_tokens=1"
    assert planned(*chosen, smallest) < planned(*chosen)
    config, node, trainer = config_of(*chosen)
    card(planned(*chosen) / ERROR - 0.1)
    sentence = refusal(config, trainer, node)
    assert sentence is not None
    assert "trainer.devices=2, " in sentence


@pytest.mark.parametrize(
    "overrides",
    [["rollout=vllm"], ["trainer.strategy=fsdp"], ["policy.pretrained=nobody/nothing"], ["trainer.accelerator=tpu"]],
    ids=" ".join,
)
def test_gpu_memory_is_not_judged_if_need_is_unknown(overrides: list[str], card: Callable[[float], None]) -> None:
    """A vLLM server may have a GPU of its own: with it on this one, the run would need more than 30 GiB."""
    config, node, trainer = config_of("experiment=llama_critic", "scale=gpu", *overrides)
    card(30.0 if "rollout=vllm" in overrides else 1.0)
    assert refusal(config, trainer, node) is None


def test_run_exits_with_refusal_and_writes_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "experiments.run",
        "experiment=clipo_math",
        "scale=paper",
        f"output_dir={tmp_path}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("trainer=cpu: GRPO of clipo_math at this size would take ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "trainer", "memory"), TRAINERS)
def test_documented_trainer_and_memory_match_plan(name: str, trainer: str, memory: float) -> None:
    chosen = (f"experiment={name}", "scale=paper")
    assert planned(*chosen, *trainer.split()) == pytest.approx(memory, abs=0.51)
    config, node, on_cpu = config_of(*chosen)
    if "grpo" in config.stages:
        assert f"use {trainer}, " in (refusal(config, on_cpu, node) or "")


def test_documented_table_lists_tracks_countdown_and_critics() -> None:
    assert {"clipo_math", "clipo_gsm8k", "llama_critic", "critic_text"} <= {name for name, *_ in TRAINERS}
