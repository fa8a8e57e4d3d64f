"""Whose log-probs are the old ones where a rollout batch is one optimizer step: the sampler's, if they agree."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from contrastive_reasoning.rollout import Engine, RolloutBatch
from lightning_modules.grpo import GRPO
from tests.unit.lightning_modules.grpo_kit import Metrics, fit, module, weights


class Shifted(Engine):
    """Says the log-probs of its first rollout batch ``shift`` too low."""

    def __init__(self, shift: float, batches: int = 1) -> None:
        super().__init__(max_batch_tokens=100_000)
        self.shift, self.left = shift, batches

    def generate(self, *arguments: Any, **settings: Any) -> RolloutBatch:
        rollouts = super().generate(*arguments, **settings)
        self.left -= 1
        shift = self.shift if self.left >= 0 else 0.0
        return replace(rollouts, old_log_probs=(rollouts.old_log_probs - shift) * rollouts.mask)


def test_one_step_per_rollout_batch_takes_the_samplers_log_probs_and_no_scoring_pass() -> None:
    """Only the first batch has a pass besides the update's own, over its first micro-batch and without gradient."""
    trained, passes = module(), []
    states = trained.policy.completion_states
    trained.policy.completion_states = lambda *rows: passes.append(torch.is_grad_enabled()) or states(*rows)
    metrics = Metrics()
    fit(trained, 2, metrics, engine=Shifted(5e-4))
    assert trained.sampler_trusted
    assert passes.count(False) == 1
    assert not passes[0]
    first, second = metrics.steps
    assert first["train/objective/approx_kl"] == pytest.approx(-5e-4, abs=1e-5), "against the sampler"
    assert first["train/objective/ratio_mean"] == pytest.approx(1.0005, abs=1e-5)
    assert first["train/rollout/log_prob_gap"] == pytest.approx(5e-4, abs=1e-5)
    assert abs(second["train/objective/ratio_mean"] - 1) < 1e-5


def test_a_sampler_that_misses_is_said_once_and_not_trusted_again(caplog: pytest.LogCaptureFixture) -> None:
    trained, metrics = module(), Metrics()
    with caplog.at_level("INFO"):
        fit(trained, 3, metrics, engine=Shifted(0.5))
    said = [record.getMessage() for record in caplog.records if "scoring_tolerance" in record.getMessage()]
    assert said == [
        "the sampler's log-probs miss the policy's by up to 0.5 nats, more than scoring_tolerance=0.001: "
        "the policy scores the rollouts itself from now on"
    ]
    assert all(step["train/objective/approx_kl"] == 0.0 for step in metrics.steps)
    assert metrics.steps[0]["train/objective/ratio_mean"] == pytest.approx(exp(0.5), rel=1e-4), "raw all the same"
    assert metrics.steps[2]["train/objective/ratio_mean"] == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("shift", [0.5, 0.0])
def test_a_resumed_run_judges_the_sampler_as_the_run_it_goes_on_with(shift: float, tmp_path: Path) -> None:
    """The first batch decides, and the resumed run never sees it: its own first batch would say the opposite."""

    def run(batches: int, name: str, **options: Any) -> GRPO:
        saving = ModelCheckpoint(dirpath=tmp_path / name, filename="last", every_n_train_steps=1, save_top_k=1)
        trained = module()
        fit(trained, 3, saving, engine=Shifted(shift, batches), **options)
        return trained

    whole = run(1, "whole")
    run(1, "stopped", stop_after=1)
    resumed = run(0, "resumed", resume=tmp_path / "stopped" / "last.ckpt")
    assert resumed.sampler_trusted is whole.sampler_trusted is (shift == 0.0)
    assert torch.equal(weights(resumed), weights(whole))
