"""Numbers that are not finite: the step is skipped and counted, weights stay finite, too many stop the run."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback
from torch import Tensor

from callbacks.health import Health
from contrastive_reasoning.advantages import GroupRelative
from contrastive_reasoning.objectives import GRPO as Objective, ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.sampling import invert_cdf
from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.reader import read_metrics
from lightning_modules.grpo import GRPO
from lightning_modules.optim import SKIPPED
from tests.unit.lightning_modules.grpo_kit import Digits, Metrics, fit, module, objective, policy, saving, weights

BAD = 2
"""The step with a number that is not finite."""


class Counting:
    """Counts its calls; corrupts the second one."""

    def __init__(self, bad: float) -> None:
        self.bad = bad
        self.calls = 0

    def worse(self, values: Tensor) -> Tensor:
        self.calls += 1
        corrupted = values.clone()
        if self.calls == BAD:
            corrupted.flatten()[0] = self.bad
        return corrupted


class BadReward(Counting):
    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = Digits()(rollouts)
        return replace(credit, outcome=self.worse(credit.outcome))


class BadAdvantage(Counting):
    def __call__(self, credit: Credit, mask: Tensor, group_size: int) -> Tensor:
        return self.worse(GroupRelative(normalise_std=True, epsilon=1e-6)(credit, mask, group_size))


class BadLoss:
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


class BadLossAlone(BadLoss):
    """Corrupts only the loss; its gradient is correct."""

    def worse(self, loss: Tensor) -> Tensor:
        return loss + self.bad


class BadGradient(Callback):
    """Corrupts the gradient of one number of the policy; the loss is correct."""

    def __init__(self, bad: float, backward: int = BAD) -> None:
        self.bad = bad
        self.backward = backward
        self.backwards = 0

    def setup(self, trainer: Any, pl_module: GRPO, stage: str) -> None:
        next(pl_module.policy.parameters()).register_hook(self.spoiled)

    def spoiled(self, gradient: Tensor) -> Tensor:
        self.backwards += 1
        worse = gradient.clone()
        worse.flatten()[0] = self.bad if self.backwards == self.backward else worse.flatten()[0]
        return worse


class Weights(Callback):
    """Records the policy's weights after every step."""

    def __init__(self) -> None:
        self.after: list[Tensor] = []

    def on_train_batch_end(self, trainer: Any, pl_module: GRPO, *_: Any) -> None:
        self.after.append(weights(pl_module))


@pytest.mark.parametrize(
    ("part", "made", "bad"),
    [
        ("reward", BadReward, float("nan")),
        ("reward", BadReward, float("inf")),
        ("advantage", BadAdvantage, float("inf")),
        ("objective", BadLoss, float("nan")),
        ("objective", BadLossAlone, float("nan")),
        ("gradient", BadGradient, float("inf")),
    ],
)
def test_non_finite_step_is_skipped_and_counted(part: str, made: Any, bad: float) -> None:
    seen, metrics, faulty = Weights(), Metrics(), made(bad)
    if part == "gradient":
        fit(module(microbatch_tokens=100_000), 3, faulty, seen, metrics)
    else:
        fit(module(**{part: faulty}), 3, seen, metrics)
    assert torch.equal(seen.after[BAD - 1], seen.after[BAD - 2]), "bit for bit as before"
    assert not torch.equal(seen.after[BAD], seen.after[BAD - 1]), "and then it goes on"
    assert seen.after[-1].isfinite().all()
    assert [step[SKIPPED] for step in metrics.steps] == [0, 1, 1]
    assert all(isfinite(value) for step in metrics.steps for value in step.values())


WHOLE = 100_000
"""A token budget that makes an update one backward."""


def test_non_finite_second_update_is_skipped_and_first_is_kept(tmp_path: Path) -> None:
    one_update = module(microbatch_tokens=WHOLE)
    fit(one_update, 1)
    trained = module(microbatch_tokens=WHOLE, updates_per_rollout=2, max_skipped_steps=0)
    before = weights(trained)
    with pytest.raises(FloatingPointError, match=r"^gradient .* update 2 of 2.* 0 steps"):
        fit(trained, 1, BadGradient(float("nan"), backward=2), root=tmp_path)
    assert torch.equal(weights(trained), weights(one_update))
    assert not torch.equal(weights(trained), before)


def test_non_finite_loss_with_finite_gradient_raises(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"^loss .* 0 steps"):
        fit(module(objective=BadLossAlone(float("inf")), max_skipped_steps=0), 2, root=tmp_path)


def test_non_finite_logits_are_detected_by_log_probs() -> None:
    broken = policy()
    with torch.no_grad():
        broken.model.model.norm.weight.fill_(3e38)  # pyright: ignore
    trained, metrics = module(policy=broken), Metrics()
    before = weights(trained)
    fit(trained, 2, metrics)
    assert [step[SKIPPED] for step in metrics.steps] == [1, 2]
    assert torch.equal(weights(trained), before)


def test_invert_cdf_of_nan_weights_returns_valid_index() -> None:
    drawn = invert_cdf(torch.tensor([[float("nan")] * 3, [0.0, 1.0, 0.0]]), torch.tensor([0.5, 0.5]))
    assert 0 <= int(drawn[0]) < 3
    assert int(drawn[1]) == 1


def test_too_many_skipped_steps_raise_and_write_rollouts(tmp_path: Path) -> None:
    class Always(Digits):
        def __call__(self, rollouts: RolloutBatch) -> Credit:
            credit = super().__call__(rollouts)
            return replace(credit, outcome=credit.outcome * float("nan"))

    trained = module(reward=Always(), max_skipped_steps=1)
    before = weights(trained)
    with pytest.raises(FloatingPointError, match=r"^reward .* 1 steps") as error:
        fit(trained, 3, root=tmp_path)
    assert torch.equal(weights(trained), before)
    left = torch.load(tmp_path / "skipped" / "step=000002.rank0.pt", weights_only=True)
    assert str(tmp_path / "skipped" / "step=000002.rank0.pt") in str(error.value)
    assert len(left["texts"]) == len(left["completion_ids"]) == 12


def test_resume_restores_count_of_skipped_steps(tmp_path: Path) -> None:
    fit(module(reward=BadReward(float("nan"))), 3, saving(tmp_path, keep=3))
    metrics = Metrics()
    fit(module(), 3, saving(tmp_path / "more"), metrics, resume=tmp_path / "step=000002.ckpt")
    assert [step[SKIPPED] for step in metrics.steps] == [1]


def test_health_checks_no_range_in_skipped_step(tmp_path: Path) -> None:
    """The last value of an earlier step must not be checked: a run resumed in between does not have it."""
    judged: dict[str, list[int]] = {}
    for name, resume in (("whole", None), ("resumed", tmp_path / "step=000001.ckpt")):
        reward, health = BadReward(float("nan")), Health(limits={"train/objective/ratio_max": [None, 10.0]})
        reward.calls = 0 if resume is None else 1
        kept = saving(tmp_path if resume is None else tmp_path / "more", keep=3)
        logger = RunFolderLogger(folder=tmp_path / name)
        fit(module(reward=reward), 3, kept, health, logger=logger, resume=resume)
        seen = read_metrics(tmp_path / name)
        judged[name] = [metric.step for metric in seen if metric.name == "train/health/objective_ratio_max"]
    assert judged == {"whole": [1, 3], "resumed": [3]}
