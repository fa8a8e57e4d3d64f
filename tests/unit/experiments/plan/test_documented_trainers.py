"""The trainers of docs/plan.md for ``scale=paper``: one GPU if it is enough, else the mildest that fits a node."""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hydra import compose
from omegaconf import OmegaConf

from experiments.cli.commands import COMMANDS
from experiments.plan.memory import MILD_TO_STRONG, sharding_of
from experiments.plan.page import H100, hours_of, mildest, work_of_step
from experiments.plan.stages import GIB, Experiment, experiment_of
from experiments.schema import composing
from tests.config_kit import EXPERIMENTS, composed

ROOT = Path(__file__).resolve().parents[4]
ROW = re.compile(r"^\| (?:[^`|]*: )?(`\w+`[^|]*) \| `(trainer=[^`]+)` \| ([\d, ]+) \|$", re.MULTILINE)
"""Rows of the table in docs/plan.md: experiments, trainer, GiB on each device (one number for all, or one each)."""
TRAINERS = [
    (name, trainer, float(memory))
    for names, trainer, numbers in ROW.findall((ROOT / "docs" / "plan.md").read_text(encoding="utf-8"))
    for name, memory in zip(re.findall(r"`(\w+)`", names), cycle(numbers.split(",")), strict=False)
]


def config_of(*overrides: str) -> tuple[Any, dict[str, Any], str]:
    """Returns the configuration, the trainer's node and its name."""
    with composing():
        config = compose("config", list(overrides), return_hydra_config=True)
    node: Any = OmegaConf.to_container(config.trainer, resolve=True)
    return config, node, config.hydra.runtime.choices.trainer


def planned(*overrides: str) -> float:
    """Returns the GiB of the fullest moment on each device, as ``make plan`` computes it for these overrides."""
    config, node, name = config_of(*overrides)
    moments = experiment_of(config, on_cpu=False).fullest(sharding_of(name, node, gpus=None))
    return max((moment.total(on_cpu=False) for moment in moments), default=0) / GIB


NODE, CARD, DAY = 8, 80.0, 24.0
"""GPUs of a node, GiB of each, and the hours after which one GPU is too slow."""


@pytest.mark.parametrize(("name", "trainer", "memory"), TRAINERS)
def test_documented_trainer_is_the_mildest_that_fits(name: str, trainer: str, memory: float) -> None:
    chosen = (f"experiment={name}", "scale=paper")
    assert planned(*chosen, *trainer.split()) == pytest.approx(memory, abs=0.51)
    assert mildest_trainer(name) == trainer or "grpo" not in composed(*chosen).stages


@pytest.mark.whole
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_documented_table_has_a_trainer_for_every_experiment(name: str) -> None:
    assert f"| `{mildest_trainer(name)}` |" in (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")


def mildest_trainer(name: str) -> str | None:
    """Returns the overrides of the trainer; None if none fits."""
    config, _, _ = config_of(f"experiment={name}", "scale=paper")
    plan = experiment_of(config, on_cpu=False)
    if mildest(plan, ["gpu"], devices=1, memory=CARD) is not None and _hours(plan) <= DAY:
        return "trainer=gpu"
    found = mildest(plan, MILD_TO_STRONG, devices=NODE, memory=CARD)
    return None if found is None else f"trainer={found[0]} trainer.devices={NODE}"


def _hours(plan: Experiment) -> float:
    if "grpo" not in plan.config.stages:
        return 0.0
    return hours_of(plan, work_of_step(plan), devices=1, tflops=H100 * COMMANDS["plan"].get_default("mfu"))


def test_documented_table_lists_tracks_countdown_and_critics() -> None:
    assert {"clipo_math", "clipo_gsm8k", "llama_critic", "critic_text"} <= {name for name, *_ in TRAINERS}
