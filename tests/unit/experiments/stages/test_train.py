"""The device of a policy outside a fit, and trainer settings that fail on this machine."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from omegaconf import OmegaConf

from contrastive_reasoning.evaluation import Evaluation
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from experiments.assemble import AssemblyError
from experiments.stages import evaluate as evaluation
from experiments.stages.experiment import run_experiment
from experiments.stages.stage_checkpoint import StopRequest
from experiments.stages.train import build_trainer, device_of, idle, make_trainer
from tests.config_kit import composed

BASE = "experiment=llama_baseline"


class PolicyDevice(Exception):
    """Raised by the suite below with the device of the policy."""


class Suite:
    """Raises the device of the policy instead of evaluating it."""

    size = 1

    def __call__(self, policy: CausalLMPolicy, **_: Any) -> Evaluation:
        raise PolicyDevice(policy.device.type)


def test_evaluate_runs_policy_on_device_of_trainer(tmp_path: Path) -> None:
    """The meta device, which holds no numbers, stands for one that this machine lacks."""
    config = deepcopy(composed(BASE))
    OmegaConf.update(
        config, "trainer.strategy", {"_target_": f"{__name__}.on_another_device"}, merge=False, force_add=True
    )
    config.suite = {"_target_": f"{__name__}.Suite"}
    with pytest.raises(PolicyDevice, match="meta"):
        evaluation.evaluate(config, tmp_path, {}, [])


def on_another_device() -> SingleDeviceStrategy:
    return SingleDeviceStrategy(device=torch.device("meta"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_raises_assembly_error() -> None:
    with pytest.raises(AssemblyError, match=r"^trainer\.accelerator=gpu"):
        device_of(composed(BASE, "trainer=gpu"))


def test_mps_is_refused_before_the_first_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.mps, "is_available", lambda: True)
    with pytest.raises(AssemblyError, match=r"^trainer\.accelerator=auto: .*cpu.*cuda"):
        run_experiment(composed(BASE, "trainer.accelerator=auto", f"output_dir={tmp_path}"))
    assert not [*tmp_path.iterdir()]


def test_idle_reports_unused_gpus() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert [idle(cpu, 0, taken=2), idle(gpu, 1, taken=1), idle(gpu, 8, taken=8)] == [None, None, None]
    assert re.search(r"8.*trainer=gpu", idle(cpu, 8, taken=1) or "")
    assert re.search(r"6 of 8 .*trainer\.devices=8", idle(gpu, 8, taken=2) or "")


def test_invalid_trainer_argument_raises_assembly_error() -> None:
    with pytest.raises(AssemblyError, match=r"^trainer \(accelerator=cpu\): .*val_check_interval"):
        make_trainer(composed(BASE), val_check_interval=-1.5)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_precision_that_a_plugin_sets_raises_assembly_error(precision: str) -> None:
    config = deepcopy(composed(BASE))
    OmegaConf.set_struct(config, value=False)
    plugin = {"_target_": "lightning.pytorch.plugins.MixedPrecision", "precision": precision, "device": "cpu"}
    config.trainer = {key: config.trainer[key] for key in ("_target_", "_partial_", "accelerator")} | {
        "plugins": plugin
    }
    with pytest.raises(AssemblyError, match=rf"^trainer\.precision={precision}: .*policy\.compute_dtype"):
        device_of(config)


def test_training_metrics_are_recorded_as_often_as_budget_of_stage_states(tmp_path: Path) -> None:
    every = {"critic": 3, "grpo": 2}
    overrides = [f"budget.{stage}.log_every={steps}" for stage, steps in every.items()]
    config = composed("experiment=llama_critic", "debug=fast", *overrides)
    trainers: dict[str, Any] = {stage: build_trainer(config, stage, tmp_path, [], StopRequest()) for stage in every}
    assert {stage: trainer.log_every_n_steps for stage, trainer in trainers.items()} == every
