"""A stage is finished if it made its planned steps and learned in at least one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Timer
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_reasoning.nonfinite import SkippedSteps
from contrastive_reasoning.policies import load
from contrastive_reasoning.policies.load import resolve
from experiments.run_folder.reader import RESULT
from experiments.stages import evaluate
from experiments.stages.experiment import Interrupted, run_experiment
from experiments.stages.train import StageFailed, check_finished, make_trainer
from lightning_modules.critic import CriticPretraining
from tests.config_kit import composed
from tests.unit.experiments.stages.test_stage_checkpoint import Line

CRITIC = ["experiment=llama_critic", "debug=fast", "stages=[critic]", "logger.mirror=false"]
GRPO = ["experiment=llama_baseline", "debug=fast", "stages=[grpo]", "logger.mirror=false"]

QUIET: dict[str, Any] = {"enable_checkpointing": False, "enable_progress_bar": False}


def run(output: Path, *overrides: str) -> None:
    run_experiment(deepcopy(composed(f"output_dir={output}", *overrides)))


def finished(output: Path) -> list[str]:
    return [path.parent.parent.name for path in output.glob(f"stages/*/*/{RESULT}")]


def train(*overrides: str, rows: int = 8, callbacks: Sequence[Callback] = ()) -> int:
    """Runs a critic's stage of four steps, by the configuration's trainer but with a tiny module and ``rows`` batches.

    Returns the steps that it made.
    """
    config, module = composed(*CRITIC, *overrides), Line()
    trainer = make_trainer(config, max_epochs=1, max_steps=4, logger=False, callbacks=list(callbacks), **QUIET)
    numbers: Any = torch.arange(float(rows)).unsqueeze(1)
    trainer.fit(module, DataLoader(numbers))
    check_finished(config, "critic", trainer, module)
    return trainer.global_step


@pytest.mark.parametrize(
    ("key", "value", "made"),
    [
        ("limit_train_batches", "2", 2),
        ("limit_train_batches", "0.25", 2),
        ("overfit_batches", "2", 2),
        ("max_time", "'00:00:00:00'", 0),
        ("accumulate_grad_batches", "4", 2),
    ],
)
def test_fewer_steps_than_planned_fail_and_name_the_key(key: str, value: str, made: int) -> None:
    with pytest.raises(StageFailed, match=rf"critic: .*\b{made} of 4 steps.*trainer\.{key}={value.strip(chr(39))}"):
        train(f"+trainer.{key}={value}")


def test_data_that_ends_before_the_budget_fail_and_are_named() -> None:
    with pytest.raises(StageFailed, match=r"\b3 of 4 steps.*datamodule"):
        train(rows=3)


def test_planned_steps_finish_whatever_the_trainer_limits() -> None:
    assert train("+trainer.limit_train_batches=4", "+trainer.max_time='00:10:00:00'") == 4
    assert train("+trainer.limit_train_batches=1.0", "+trainer.overfit_batches=0.0", rows=4) == 4


class Stop(Callback):
    """Ends the training after two steps, as Lightning's EarlyStopping does."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.global_step == 2


def test_early_end_by_a_callback_finishes(capsys: pytest.CaptureFixture[str]) -> None:
    train(callbacks=[Stop()])
    assert "at step 2 of 4" in capsys.readouterr().out
    with pytest.raises(StageFailed):
        train(callbacks=[Timer(duration={"seconds": 0})])


@pytest.mark.whole
def test_grpo_stage_of_fewer_steps_is_not_finished(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=r"grpo: .*\b1 of 2 steps.*trainer\.limit_train_batches=1"):
        run(tmp_path, *GRPO, "+trainer.limit_train_batches=1")
    assert finished(tmp_path) == []


@pytest.mark.whole
def test_stage_that_max_time_stopped_resumes_without_it(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=r"trainer\.max_time"):
        run(tmp_path, *CRITIC, "+trainer.max_time='00:00:00:00'")
    run(tmp_path, *CRITIC)
    assert finished(tmp_path) == ["critic"]
    assert len(list((tmp_path / "stages/critic").iterdir())) == 1


@pytest.mark.whole
def test_stage_that_skipped_every_step_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = CriticPretraining._training_loss

    def not_finite(module: CriticPretraining, batch: Any) -> Any:
        loss, metrics = original(module, batch)
        return loss * float("nan"), metrics

    monkeypatch.setattr(CriticPretraining, "_training_loss", not_finite)
    with pytest.raises(StageFailed, match=r"critic: .*pretraining\.max_skipped_steps"):
        run(tmp_path, *CRITIC)
    assert finished(tmp_path) == []


@pytest.mark.whole
def test_policy_with_weights_that_are_not_finite_does_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if they became so after loading, which refuses such weights."""
    monkeypatch.setattr(load, "check_passes", lambda *_: None)
    folder, bundled = tmp_path / "policy", resolve("embedded:llama_countdown")
    model: Any = AutoModelForCausalLM.from_pretrained(bundled)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(bundled).save_pretrained(folder)
    with pytest.raises(StageFailed, match=r"grpo: .*2 of 2 steps.*module\.max_skipped_steps"):
        run(tmp_path, *GRPO, f"policy.pretrained={folder}")
    assert finished(tmp_path) == []


@pytest.mark.parametrize(
    ("warmup", "skipped", "fails"),
    [(0, 1, False), (0, 2, True), (1, 0, False), (1, 1, True), (5, 1, False), (5, 2, True)],
)
def test_warm_up_of_the_reward_is_not_counted_as_learning_of_the_policy(warmup: int, skipped: int, fails: bool) -> None:
    """Of two rollout batches. A run that ends within the warm-up has only trained the reward."""
    module: Any = SimpleNamespace(rollout_step=2, warmup_steps=warmup, skipped=SkippedSteps(10))
    module.skipped.count = skipped
    trainer: Any = SimpleNamespace(should_stop=False, callbacks=[], global_step=0)
    if fails:
        with pytest.raises(StageFailed, match=r"module\.max_skipped_steps"):
            check_finished(composed(*GRPO), "grpo", trainer, module)
    else:
        check_finished(composed(*GRPO), "grpo", trainer, module)


@pytest.mark.whole
def test_system_exit_of_code_in_a_stage_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> Any:
        raise SystemExit("no access key")

    monkeypatch.setattr(CriticPretraining, "_training_loss", leave)
    with pytest.raises(StageFailed, match=r"critic: .*SystemExit: no access key"):
        run(tmp_path, *CRITIC)
    assert finished(tmp_path) == []


class Ends(Callback):
    """Raises KeyboardInterrupt in one hook of a fit, or sends SIGINT."""

    def __init__(self, *, hook: str, by_signal: bool) -> None:
        setattr(self, hook, lambda *_, **__: self.end(by_signal=by_signal))

    def end(self, *, by_signal: bool) -> None:
        if by_signal:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            raise KeyboardInterrupt("enough")


HOOKS = ("on_validation_start", "on_train_batch_end", "setup")


@pytest.mark.whole
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("hook", "by_signal", "error", "message"),
    [
        *((hook, False, StageFailed, "^critic: .*KeyboardInterrupt: enough") for hook in HOOKS),
        ("setup", True, Interrupted, "^critic: stopped"),  # test_stage_stop.py has the other hooks
    ],
)
def test_only_a_signal_interrupts_a_fit(
    tmp_path: Path, hook: str, by_signal: bool, error: type[Exception], message: str
) -> None:
    own = f"++callbacks.critic.own={{_target_: {__name__}.Ends, hook: {hook}, by_signal: {by_signal}}}"
    with pytest.raises(error, match=message):
        run(tmp_path, *CRITIC, own)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(("by_signal", "error"), [(False, StageFailed), (True, Interrupted)])
def test_only_a_signal_interrupts_a_stage_outside_a_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_signal: bool, error: type[Exception]
) -> None:
    ended = Ends(hook="setup", by_signal=by_signal)
    monkeypatch.setattr(evaluate, "evaluate", lambda *_: ended.end(by_signal=by_signal))
    with pytest.raises(error, match=r"^evaluate: "):
        run(tmp_path, "experiment=llama_baseline", "debug=fast", "stages=[evaluate]", "logger.mirror=false")
