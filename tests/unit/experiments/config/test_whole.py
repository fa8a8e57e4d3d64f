"""``flaws`` names keys that no part reads and values of a wrong type or out of bounds, in any file."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments.config.folders import VARIABLE
from experiments.config.override_checks import override_error
from experiments.config.whole import flaws
from tests.config_kit import composed


def first_flaw(body: str) -> str | None:
    """Returns the first flaw of an experiment that sets ``body`` in addition to the values of its parts."""
    config = deepcopy(composed("experiment=llama_baseline"))
    OmegaConf.set_struct(config, False)
    merged = OmegaConf.merge(config, OmegaConf.create(body))
    return next(flaws(merged), None)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("budget: {grpo: {stepz: 5}}", "budget.grpo.stepz: no such key; did you mean 'budget.grpo.steps' of "),
        (
            "checkpoints: {best: {gprO: null}}",
            "checkpoints.best.gprO: no such key; did you mean 'checkpoints.best.grpo'",
        ),
        ("warm_start: {train: maybe}", "warm_start.train must be true or false or 'auto', got the text 'maybe'"),
        (
            "rollout: {sampling: {temprature: 1.0}}",
            "rollout.sampling.temprature: no such key; did you mean 'rollout.samp",
        ),
        ("callbacks: {grpo: {alarms: {treshold: 1}}}", "callbacks.grpo.alarms.treshold: no such key; did you mean "),
        ("objective: {_target_: contrastive_reasoning.objectives.DAPO}", "objective.kl_weight: no such key; "),
        (
            "reward: {_target_: contrastive_reasoning.rewards.RandomPotentialReward}",
            "reward.outcome is missing; there ",
        ),
    ],
)
def test_flaws_names_unread_and_missing_keys(body: str, sentence: str) -> None:
    message = first_flaw(body)
    assert message is not None
    assert message.startswith(sentence)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            "rollout: {sampling: {temperature: '0.6'}}",
            "rollout.sampling.temperature must be a number, got the text '0.6'",
        ),
        ("objective: {clip_low: true}", "objective.clip_low must be a number, got True"),
        ("rollout: {sampling: {top_k: 0.5}}", "rollout.sampling.top_k must be a whole number or null, got 0.5"),
        ("logger: {mirror: 'yes'}", "logger.mirror must be true or false, got the text 'yes'"),
        ("logger: {patience: -1}", "logger.patience must be a number of at least 0, got -1"),
        ("budget: {grpo: {steps: 5.0}}", "budget.grpo.steps must be a whole number of at least 0, got 5.0"),
        ("logger: {patience: .nan}", "logger.patience must be a number of at least 0, got nan"),
        ("budget: {grpo: {learning_rate: .nan}}", "budget.grpo.learning_rate must be a number above 0, got nan"),
        ("budget: {grpo: {learning_rate: 0}}", "budget.grpo.learning_rate must be a number above 0, got 0"),
        (
            "budget: {grpo: {max_prompt_tokens: 0}}",
            "budget.grpo.max_prompt_tokens must be a whole number of at least 1 or null, got 0",
        ),
        ("budget: {critic: 5}", "budget.critic must be a mapping of steps, "),
        ("checkpoints: {keep: 0}", "checkpoints.keep must be a whole number of at least 1, got 0"),
        (
            "budget: {warm_start: {checkpoint_every: 0}}",
            "budget.warm_start.checkpoint_every must be a whole number of at least 1, got 0",
        ),
        ("checkpoints: {best: {grpo: best}}", "checkpoints.best.grpo must be "),
        (
            "checkpoints: {best: {grpo: {val/verifier/accuracy: maximum}}}",
            "checkpoints.best.grpo.val/verifier/accuracy must be 'min' or 'max', got the text 'maximum'",
        ),
        (
            "checkpoints: {best: {grpo: {val/more: max}}}",
            "checkpoints.best.grpo must name one metric with min or max, got {'val/verifier/accuracy': 'max', ",
        ),
        (
            "trainer: {gradient_clip_val: 1.0}",
            "trainer.gradient_clip_val=1.0: the stages set it; instead of it set ",
        ),
    ],
)
def test_flaws_names_values_of_wrong_type_or_out_of_bounds(body: str, sentence: str) -> None:
    message = first_flaw(body)
    assert message is not None
    assert message.startswith(sentence)


@pytest.mark.parametrize(
    "body",
    [
        "rollout: {sampling: {temperature: 1, top_k: 5}}",
        "budget: {grpo: {max_prompt_tokens: 64, learning_rate: 1}}",
        "checkpoints: {best: {grpo: null, warm_start: {val/warm_start/loss: max}}}",
        "trainer: {limit_val_batches: 2, max_epochs: null}",
        "callbacks: {every: {mine: {_target_: lightning.Callback}}}",
        "logger: {patience: 1}",
    ],
)
def test_flaws_accepts_valid_values(body: str) -> None:
    assert first_flaw(body) is None


EXPERIMENT = """
# @package _global_
# Mine.
defaults:
  - llama_baseline
  - _self_
name: mine
budget:
  grpo:
    stepz: 5
"""


def test_user_file_with_unread_key_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(EXPERIMENT.lstrip())
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    message = override_error(["experiment=mine"])
    assert message is not None
    assert message.startswith("budget.grpo.stepz: no such key; did you mean 'budget.grpo.steps' of ")
