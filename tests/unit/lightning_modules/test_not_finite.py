"""Numbers that are not finite: the step is skipped and counted, weights stay finite, too many stop the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from torch import Tensor

from callbacks.health import Health
from contrastive_reasoning.advantages import GroupRelative
from contrastive_reasoning.objectives import GRPO as Objective, ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import RolloutBatch
from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.reader import read_metrics
from lightning_modules.optim import SKIPPED, FiniteSteps
from tests.unit.lightning_modules import automatic_kit, test_critic, test_preference, test_warm_start
from tests.unit.lightning_modules.grpo_kit import (
    Digits,
    Metrics,
    StepWeights,
    all_weights,
    fit,
    module,
    objective,
    policy,
    saving,
    weights,
)

BAD = 2
"""The step with a number that is not finite."""
WHOLE = 100_000
"""A token budget that makes an update one backward."""


class BadReward:
    """Corrupts an outcome in its second call."""

    def __init__(self, bad: float) -> None:
        self.bad = bad
        self.calls = 0

    def worse(self, values: Tensor) -> Tensor:
        self.calls += 1
        corrupted = values.clone()
        if self.calls == BAD:
            corrupted.flatten()[0] = self.bad
        return corrupted

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = Digits()(rollouts)
        return replace(credit, outcome=self.worse(credit.outcome))


class BadAdvantage(BadReward):
    """Corrupts an advantage in its second call."""

    def __call__(self, credit: Credit, mask: Tensor, group_size: int) -> Tensor:  # type: ignore[override]
        return self.worse(GroupRelative(normalise_std=True, epsilon=1e-6)(credit, mask, group_size))


class BadObjective:
    """Corrupts the loss in every micro-batch of the second step."""

    def __init__(self, bad: float) -> None:
        self.bad = bad
        self.sound: Objective = objective()
        self.updates = 0

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        outputs = self.sound(inputs)
        return replace(outputs, loss=self.worse(outputs.loss)) if self.updates == BAD else outputs

    def worse(self, loss: Tensor) -> Tensor:
        return loss * self.bad

    def weights(self, mask: Tensor, *, rows: float, tokens: float) -> Tensor:
        """Called once for each step."""
        self.updates += 1
        return self.sound.weights(mask, rows=rows, tokens=tokens)


class BadObjectiveLoss(BadObjective):
    """Corrupts only the loss; its gradient is correct."""

    def worse(self, loss: Tensor) -> Tensor:
        return loss + self.bad


class BadGradient(Callback):
    """Corrupts one number of the gradient in the given backward; the loss is correct."""

    def __init__(self, bad: float, backward: int = BAD) -> None:
        self.bad, self.backward, self.backwards = bad, backward, 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        next(parameter for parameter in pl_module.parameters() if parameter.requires_grad).register_hook(self.corrupt)

    def corrupt(self, gradient: Tensor) -> Tensor:
        self.backwards += 1
        corrupted = gradient.clone()
        if self.backwards == self.backward:
            corrupted.flatten()[0] = self.bad
        return corrupted


@pytest.mark.parametrize(
    ("part", "made", "bad"),
    [
        ("reward", BadReward, float("nan")),
        ("reward", BadReward, float("inf")),
        ("advantage", BadAdvantage, float("inf")),
        ("objective", BadObjective, float("nan")),
        ("objective", BadObjectiveLoss, float("nan")),
        ("gradient", BadGradient, float("inf")),
    ],
)
def test_non_finite_step_is_skipped_and_counted(part: str, made: Any, bad: float) -> None:
    seen, metrics, faulty = StepWeights(), Metrics(), made(bad)
    if part == "gradient":
        fit(module(microbatch_tokens=WHOLE), 3, faulty, seen, metrics)
    else:
        fit(module(**{part: faulty}), 3, seen, metrics)
    seen.assert_only_skipped(BAD)
    assert [step[SKIPPED] for step in metrics.steps] == [0, 1, 1]
    assert all(isfinite(value) for step in metrics.steps for value in step.values())


def test_non_finite_second_update_is_skipped_and_first_is_kept(tmp_path: Path) -> None:
    one_update = module(microbatch_tokens=WHOLE)
    fit(one_update, 1)
    trained = module(microbatch_tokens=WHOLE, updates_per_rollout=2, max_skipped_steps=0)
    before = weights(trained)
    with pytest.raises(FloatingPointError, match=r"^gradient .* update 2 of 2.* 0 steps"):
        fit(trained, 1, BadGradient(float("nan"), backward=2), root=tmp_path)
    assert torch.equal(weights(trained), weights(one_update))
    assert not torch.equal(weights(trained), before)


@pytest.mark.parametrize(
    ("part", "made", "bad", "named"),
    [("reward", BadReward, float("nan"), "reward"), ("objective", BadObjectiveLoss, float("inf"), "loss")],
)
def test_too_many_skipped_steps_raise_and_write_rollouts(
    part: str, made: Any, bad: float, named: str, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {part: made(bad)}
    trained, seen = module(**changes, max_skipped_steps=0), StepWeights()
    path = tmp_path / "skipped" / f"step={BAD:06}.rank0.pt"
    with pytest.raises(FloatingPointError, match=rf"^{named} .* 0 steps.*{path}"):
        fit(trained, 3, seen, root=tmp_path)
    assert torch.equal(weights(trained), seen.seen[-1][0])
    left = torch.load(path, weights_only=True)
    assert len(left["texts"]) == len(left["completion_ids"]) == 12


def test_non_finite_logits_are_detected_by_log_probs() -> None:
    broken = policy()
    with torch.no_grad():
        broken.model.model.norm.weight.fill_(3e38)  # pyright: ignore
    trained, metrics = module(policy=broken), Metrics()
    before = weights(trained)
    fit(trained, 2, metrics)
    assert [step[SKIPPED] for step in metrics.steps] == [1, 2]
    assert torch.equal(weights(trained), before)


def test_resumed_run_continues_count_and_health_checks_no_range_in_skipped_step(tmp_path: Path) -> None:
    """The last value of an earlier step must not be checked: a run resumed in between does not have it."""
    judged: dict[str, list[int]] = {}
    for name, done in (("whole", 0), ("resumed", 1), ("resumed later", BAD)):
        reward, health = BadReward(float("nan")), Health(limits={"train/objective/ratio_max": [None, 10.0]})
        reward.calls = done
        logger, metrics = RunFolderLogger(folder=tmp_path / name), Metrics()
        resume = tmp_path / "kept whole" / f"step={done:06}.ckpt" if done else None
        kept = saving(tmp_path / f"kept {name}", keep=3)
        fit(module(reward=reward), 3, kept, health, metrics, logger=logger, resume=resume)
        assert [step[SKIPPED] for step in metrics.steps] == [0, 1, 1][done:]
        seen = read_metrics(tmp_path / name)
        judged[name] = [metric.step for metric in seen if metric.name == "train/health/objective_ratio_max"]
    assert judged == {"whole": [1, 3], "resumed": [3], "resumed later": [3]}


KINDS: dict[str, tuple[Callable[..., FiniteSteps], Callable[[], dict[str, Any]], set[str]]] = {
    "warm_start": (
        test_warm_start.module,
        lambda: {"datamodule": test_warm_start.data()},
        {"prompts", "completions"},
    ),
    "critic": (
        test_critic.module,
        lambda: {"train_dataloaders": test_critic.loader(test_critic.pairs(), 4)},
        {"state_actions", "goals", "positive", "candidate"},
    ),
    "preference": (
        test_preference.module,
        lambda: {"datamodule": test_preference.pairs()},
        {"chosen", "rejected", "prefix"},
    ),
}
"""Module, data, and the parts of a batch that is written to disk."""


class BadLoss(Callback):
    """Corrupts the computed loss of some steps; its gradient is correct."""

    def __init__(self, bad: float, *steps: int) -> None:
        self.bad, self.steps = bad, steps

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        name = "loss" if hasattr(type(pl_module), "loss") else "_loss_and_metrics"
        original = getattr(pl_module, name)

        def corrupted(*args: Any) -> Any:
            loss, more = original(*args)
            return (loss + self.bad if trainer.global_step + 1 in self.steps else loss), more

        setattr(pl_module, name, corrupted)


@pytest.mark.parametrize(("fault", "bad"), [(BadLoss, float("inf")), (BadGradient, float("nan"))])
@pytest.mark.parametrize("kind", KINDS)
def test_non_finite_step_is_skipped_and_counted_after_resume(
    kind: str, fault: type[Callback], bad: float, tmp_path: Path
) -> None:
    seen, metrics, (make, data, _) = StepWeights(), Metrics(), KINDS[kind]
    automatic_kit.fit(make(max_skipped_steps=1), data(), tmp_path, fault(bad, BAD), seen, metrics, Health(limits={}))
    seen.assert_only_skipped(BAD)
    assert [step[SKIPPED] for step in metrics.steps] == [0, 1, 1, 1]
    losses = [step[f"train/{'warm_start' if kind == 'warm_start' else 'critic'}/loss"] for step in metrics.steps]
    assert all(torch.tensor(losses).isfinite())
    if fault is BadLoss:  # the step repeats the last logged value, as Lightning does
        assert losses[1] == losses[0] != losses[2]
        resumed = Metrics()
        again, checkpoint = make(max_skipped_steps=1), tmp_path / "step=2.ckpt"
        automatic_kit.fit(again, data(), tmp_path / "more", resumed, resume=checkpoint)
        assert [step[SKIPPED] for step in resumed.steps] == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_skipped_steps_raise_and_write_batch(kind: str, tmp_path: Path) -> None:
    seen, (make, data, parts) = StepWeights(), KINDS[kind]
    module, path = make(max_skipped_steps=1), tmp_path / "skipped" / "step=000003.rank0.pt"
    with pytest.raises(FloatingPointError, match=rf"^gradient .* 1 steps.*{path}"):
        automatic_kit.fit(module, data(), tmp_path, BadLoss(float("nan"), 2, 3), seen)
    assert torch.equal(all_weights(module), seen.seen[0][0])
    left = torch.load(path, weights_only=True)
    assert set(left) == parts
    if kind == "critic":
        assert torch.equal(left["state_actions"], test_critic.pairs().state_actions)
