"""The scales between a laptop and the papers: the options that each selects, and whether these fit its machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.plan.memory import by_name
from experiments.plan.page import H100, PYTHON, hours_of, work_of_step
from experiments.plan.stages import GIB, Experiment, experiment_of
from tests.config_kit import EXPERIMENTS, composed

ROOT = Path(__file__).resolve().parents[4]
SMALL_CARD, LARGE_CARD, WORKSTATION = 24.0, 80.0, 16.0
"""GiB."""
LARGER = {"critic_preference", "llama_"}
"""Prefixes of experiments whose default model needs more than the small card at ``scale=gpu``."""
ROW = re.compile(r"^\| .*\| `(experiment=[^`]+)` \| [^|]*\| ([\d.]+) \| ([\d.]+|—) \|$", re.MULTILINE)
"""Rows of the table in docs/scales.md: command line, GiB, hours of GRPO."""
DOCUMENTED = [row.groups() for row in ROW.finditer((ROOT / "docs" / "scales.md").read_text(encoding="utf-8"))]
UTILISATION = 0.1
"""Share of an H100's peak, as in the table."""


def planned(*overrides: str) -> tuple[Experiment, float]:
    """Returns the plan on one device of the scale's trainer, and the GiB of its fullest moment."""
    config = composed(*overrides)
    on_cpu = config.trainer.accelerator == "cpu"
    plan = experiment_of(config, on_cpu=on_cpu)
    moments = plan.fullest(by_name("cpu" if on_cpu else "gpu", 1))
    needs = max((moment.total(on_cpu=on_cpu) for moment in moments), default=0) / GIB
    return plan, needs + (PYTHON if on_cpu else 0)


@pytest.mark.parametrize(
    ("line", "model", "accelerator"),
    [
        ("experiment=llama_critic scale=gpu", "meta-llama/Llama-3.2-1B-Instruct", "gpu"),
        ("experiment=clipo_gsm8k scale=gpu", "Qwen/Qwen2.5-0.5B-Instruct", "gpu"),
        ("experiment=llama_critic scale=workstation", "outputs/models/smollm2-135m-q4", "cpu"),
        ("experiment=clipo_gsm8k scale=workstation", "Qwen/Qwen2.5-0.5B-Instruct", "cpu"),
        ("experiment=llama_critic scale=gpu trainer=zero2", "meta-llama/Llama-3.2-1B-Instruct", "auto"),
    ],
)
def test_scale_selects_model_of_family_and_trainer(line: str, model: str, accelerator: str) -> None:
    config = composed(*line.split())
    assert (config.policy.pretrained, config.trainer.accelerator) == (model, accelerator)
    assert config.policy.chat_template is True


@pytest.mark.parametrize("scale", ["gpu", "workstation"])
def test_scale_reads_real_problems_and_warm_starts_countdown(scale: str) -> None:
    answers, countdown, stories = (
        composed("name=any", f"task={task}", f"scale={scale}") for task in ("gsm8k", "countdown", "arithmetic")
    )
    assert (answers.task.source, answers.warm_start.train) == ("hub", "auto")
    assert answers.suite.settings.main.task == answers.task
    assert (countdown.task.style, countdown.warm_start.train) == ("direct", True)
    assert stories.task.instructed


@pytest.mark.parametrize("scale", ["gpu", "workstation"])
@pytest.mark.parametrize("task", ["gsm8k", "countdown"])
def test_adapters_have_larger_learning_rate(scale: str, task: str) -> None:
    line = ("name=any", f"task={task}", f"scale={scale}")
    whole, adapters = composed(*line), composed(*line, "adapter=lora")
    assert (whole.policy.lora, adapters.policy.lora.rank) == (None, 16)
    assert whole.optimizer.learning_rate < adapters.optimizer.learning_rate == 1e-5


def test_critic_steps_follow_scale_unless_own_budget_sets_them() -> None:
    steps = {
        scale: [
            composed(f"experiment={name}", f"scale={scale}").budget.critic.steps
            for name in ("llama_critic", "critic_text")
        ]
        for scale in ("laptop", "workstation", "gpu", "paper")
    }
    assert steps == {
        "laptop": [1200, 300],
        "workstation": [1200, 1500],
        "gpu": [1200, 1500],
        "paper": [240_000, 240_000],
    }


def test_documented_table_lists_each_family_at_each_scale() -> None:
    lines = {line for line, _, _ in DOCUMENTED}
    for family in ("llama", "qwen"):
        for scale in ("workstation", "gpu"):
            assert any(f"={family}_critic scale={scale}" in line for line in lines)


@pytest.mark.parametrize(("line", "memory", "hours"), DOCUMENTED, ids=lambda value: value.replace(" ", ","))
def test_documented_memory_and_hours_match_plan(line: str, memory: str, hours: str) -> None:
    bfloat16 = ["policy.compute_dtype=bfloat16"] if "workstation" in line else []  # auto depends on this machine
    plan, needs = planned(*line.split(), *bfloat16)
    assert needs == pytest.approx(float(memory), abs=0.51)
    assert needs <= (WORKSTATION if "workstation" in line else LARGE_CARD)
    if hours != "—":
        took = hours_of(plan, work_of_step(plan), devices=1, tflops=H100 * UTILISATION)
        assert took == pytest.approx(float(hours), abs=0.051)


@pytest.mark.parametrize(
    "line",
    [
        "experiment=clipo_math",
        *(f"experiment={name} policy=qwen_1_5b adapter=lora" for name in ("clipo_math", "qwen_critic")),
        "experiment=llama_critic adapter=lora",
    ],
)
def test_small_models_and_adapters_fit_24_gb_card(line: str) -> None:
    assert planned(*line.split(), "scale=gpu")[1] <= SMALL_CARD


@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.parametrize("name", ["clipo_math", "qwen_critic"])
def test_qwen_3b_fits_80_gb_card(name: str, adapter: str) -> None:
    assert planned(f"experiment={name}", "scale=gpu", "policy=qwen_3b", f"adapter={adapter}")[1] <= LARGE_CARD


@pytest.mark.whole
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_fits_a_workstation(name: str, dtype: str) -> None:
    assert planned(f"experiment={name}", "scale=workstation", f"policy.compute_dtype={dtype}")[1] <= WORKSTATION


@pytest.mark.whole
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_fits_one_gpu(name: str) -> None:
    larger = name.startswith(tuple(LARGER))
    assert planned(f"experiment={name}", "scale=gpu")[1] <= (LARGE_CARD if larger else SMALL_CARD)
