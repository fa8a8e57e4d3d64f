"""User YAML in ``--config-dir``: a task needs one file, and a policy keeps the values of its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose
from omegaconf import DictConfig, OmegaConf

from experiments.config.contradictions import contradiction
from experiments.config.folders import CONF, VARIABLE
from experiments.config.override_checks import override_error
from experiments.schema import composing
from tests.config_kit import SCALES, composed

TASKS = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))
TASK_OF_ROWS = """
# My own problems.
defaults:
  - rows
  - _self_
name: mine
path: problems.jsonl
"""
TASK_OF_A_CLASS = """
# My own class.
_target_: my_tasks.Mine
limit: 5
"""
POLICY = """
# My own model.
_target_: contrastive_reasoning.policies.load.load_policy
pretrained: models/mine
architecture: null
weights_dtype: float16
compute_dtype: float16
lora: null
chat_template: true
trust_remote_code: false
gradient_checkpointing: false
compiled: false
kernels: torch
seed: 7
corpus: null
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "my_tasks.py").write_text("class Mine:\n    def __init__(self, *, limit: int) -> None: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write_yaml(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text.lstrip())


def compose_fresh(*overrides: str) -> DictConfig:
    """Composes without a cache, because each test has its own folder."""
    with composing():
        return compose("config", list(overrides))


def test_user_task_of_a_class_needs_one_file(folder: Path) -> None:
    write_yaml(folder, "task/mine.yaml", TASK_OF_A_CLASS)
    assert override_error(["experiment=grpo_laptop", "task=mine", "stages=[grpo,evaluate]"]) is None


@pytest.mark.parametrize("scale", SCALES)
def test_user_task_needs_one_file(scale: str, folder: Path) -> None:
    write_yaml(folder, "task/mine.yaml", TASK_OF_ROWS)
    config = compose_fresh("experiment=grpo_laptop", "task=mine", f"scale={scale}", "stages=[grpo,evaluate]")
    assert contradiction(config) is None
    assert config.warm_start.module is None
    assert config.suite.settings.main.task == config.task
    assert config.budget == composed("name=any", "task=rows", f"scale={scale}").budget
    models = {
        "laptop": "embedded:llama_arithmetic",
        "workstation": f"{config.output_dir}/models/smollm2-135m-q4",
        "gpu": "meta-llama/Llama-3.2-1B-Instruct",
        "paper": "meta-llama/Llama-3.1-8B-Instruct",
    }
    assert config.policy.pretrained == models[scale]
    assert config.policy.corpus is None


def test_user_task_can_override_suite_and_warm_start(folder: Path) -> None:
    choices = "  - override /suite@_global_.suite: my_suite\n  - override /warm_start@_global_.warm_start: arithmetic\n"
    write_yaml(folder, "task/mine.yaml", TASK_OF_ROWS.replace("  - _self_\n", f"  - _self_\n{choices}"))
    write_yaml(folder, "suite/my_suite.yaml", "# Mine.\ndefaults:\n  - held_out\n  - _self_\npublished: mine\n")
    chosen = compose_fresh("name=any", "task=mine")
    assert (chosen.suite.published, chosen.warm_start.datamodule.task) == ("mine", chosen.task)
    assert compose_fresh("name=any", "task=mine", "warm_start=none").warm_start.module is None


def test_user_policy_is_not_changed_by_task_or_scale(folder: Path) -> None:
    """Checked for every task on a laptop, and for Countdown at every other scale."""
    write_yaml(folder, "policy/mine.yaml", POLICY)
    for task, scale in [*((task, SCALES[0]) for task in TASKS), *(("countdown", scale) for scale in SCALES[1:])]:
        config = compose_fresh("name=any", f"task={task}", f"scale={scale}", "family=qwen", "policy=mine")
        assert config.policy == OmegaConf.create(POLICY), (task, scale)


def test_task_and_scale_select_policy_and_task_style() -> None:
    """The small model and the style of the task depend on both, so neither scale nor policy alone shows them."""
    laptop, paper = (composed("name=any", "task=countdown", f"scale={scale}") for scale in ("laptop", "paper"))
    assert (laptop.task.style, laptop.policy.pretrained) == ("direct", "embedded:llama_countdown_unaimed")
    assert (paper.task.style, paper.policy.lora.rank) == ("annotated", 32)
