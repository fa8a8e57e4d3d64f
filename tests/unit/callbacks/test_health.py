"""Alarms of step credit and ranges of metrics."""

from __future__ import annotations

import random
import warnings
from statistics import mean, stdev
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from callbacks.health import CORRELATION, RETURN, RISING, SUCCESS, Alarms, Health, rise
from tests.quiet import quiet_trainer

W = 5


def noisy(level: float, later: float, seed: int) -> list[float]:
    """2·W values around a level, and around another one in the second half."""
    rng = random.Random(seed)
    return [rng.gauss(level if step < W else later, 0.01) for step in range(2 * W)]


def judged(**series: list[float]) -> dict[str, bool]:
    alarms, names = Alarms(window=W, threshold=4.0), {"returns": RETURN, "success": SUCCESS, "correlation": CORRELATION}
    for step in range(2 * W):
        alarms.take({names.get(name, RISING.get(name, "")): values[step] for name, values in series.items()})
    return alarms.compare()


UP, FLAT, DOWN = noisy(0.3, 0.5, 0), noisy(0.3, 0.3, 1), noisy(0.5, 0.3, 2)


def test_process_return_alone() -> None:
    assert judged(returns=UP, success=FLAT) == {"process_return_alone": True}
    assert judged(returns=UP, success=DOWN) == {"process_return_alone": True}
    assert judged(returns=UP, success=UP) == {"process_return_alone": False}
    assert judged(returns=FLAT, success=FLAT) == {"process_return_alone": False}
    assert judged(returns=UP) == {}, "nothing is known of success"


@pytest.mark.parametrize("name", RISING)
def test_what_must_not_rise(name: str) -> None:
    assert judged(**{name: UP}) == {name: True}
    assert judged(**{name: FLAT}) == {name: False}
    assert judged(**{name: DOWN}) == {name: False}


def test_correlation_below_zero() -> None:
    assert judged(correlation=noisy(0.2, -0.2, 0)) == {"outcome_correlation": True}
    assert judged(correlation=noisy(-0.2, 0.2, 0)) == {"outcome_correlation": False}
    assert judged(correlation=noisy(0.0, -0.001, 3)) == {"outcome_correlation": False}, "not told from zero"


def test_a_rise_in_standard_errors_by_hand() -> None:
    before, now = UP[:W], UP[W:]
    error = ((stdev(before) ** 2 + stdev(now) ** 2) / W) ** 0.5
    assert rise(before, now) == pytest.approx((mean(now) - mean(before)) / error)
    assert rise([0.0] * W, [0.0] * W) == 0.0
    assert rise([0.0] * W, [1.0] * W) == float("inf")


def test_only_the_last_two_windows_count_and_nothing_is_said_before_there_are_two() -> None:
    alarms = Alarms(window=W, threshold=4.0)
    found = []
    for value in [*UP, *noisy(0.5, 0.5, 4)]:
        alarms.take({RISING["kl"]: value})
        found.append(alarms.compare().get("kl"))
    assert found[: 2 * W - 1] == [None] * (2 * W - 1)
    assert found[2 * W - 1] is True
    assert found[-1] is False


class Gamed(L.LightningModule):
    """Logs step values that rise and a success that does not; the correlation only in every third step."""

    def __init__(self, returns: list[float], success: list[float], correlation: float | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.returns, self.success, self.correlation = returns, success, correlation
        self.rollout_step = 100
        self.reported: dict[str, float] = {}

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.reported = {RETURN: self.returns[batch_idx], SUCCESS: self.success[batch_idx]}
        if self.correlation is not None and batch_idx % 3 == 0:
            self.reported[CORRELATION] = self.correlation - 0.01 * batch_idx
        self.rollout_step += 1
        self.log_dict(self.reported, batch_size=1)
        return (self.weight * batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module: Any, *callbacks: L.Callback) -> L.Trainer:
    steps = len(module.returns if isinstance(module, Gamed) else module.losses)
    trainer = quiet_trainer(max_steps=steps, callbacks=[*callbacks])
    trainer.fit(module, DataLoader(torch.ones(steps, 1), batch_size=1))  # type: ignore[arg-type]
    return trainer


def test_in_a_run_it_is_logged_and_said_once_and_only_watches() -> None:
    rising = [0.3 + 0.05 * step + 0.001 * (step % 2) for step in range(4 * W)]
    flat = [0.2 + 0.01 * (step % 3) for step in range(4 * W)]
    watched, alone = Gamed(rising, flat), Gamed(rising, flat)
    with pytest.warns(UserWarning, match=r"alarm at step 110: the values of steps rise while success does not") as said:
        trainer = fit(watched, Alarms(window=W, threshold=4.0))
    assert sum("alarm at step" in str(warning.message) for warning in said) == 1
    assert trainer.callback_metrics["train/alarm/process_return_alone"] == 1
    assert "train/alarm/kl" not in trainer.callback_metrics
    fit(alone)
    assert torch.equal(watched.weight, alone.weight)


def test_a_metric_that_most_steps_do_not_log_enters_once_for_each_that_did() -> None:
    """Logged in the steps 0, 3, 6 …: 9 values in 27 steps, where two windows are 10."""
    alarms = Alarms(window=W, threshold=4.0)
    trainer = fit(Gamed([0.3] * 27, [0.2] * 27, correlation=-0.2), alarms)
    assert alarms.seen[CORRELATION] == pytest.approx([-0.2 - 0.01 * step for step in range(0, 27, 3)])
    assert len(alarms.seen[RETURN]) == 2 * W
    assert trainer.callback_metrics[CORRELATION] == pytest.approx(-0.2 - 0.24), "Lightning has the last one still"
    assert "train/alarm/outcome_correlation" not in trainer.callback_metrics


def test_a_quiet_run_logs_zero() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="alarm at step")
        trainer = fit(Gamed(FLAT, FLAT), Alarms(window=W, threshold=4.0))
    assert trainer.callback_metrics["train/alarm/process_return_alone"] == 0


def test_its_windows_resume() -> None:
    whole, stopped, resumed = (Alarms(window=W, threshold=4.0) for _ in range(3))
    for step, value in enumerate(UP):
        whole.take({RISING["kl"]: value})
        (stopped if step < 7 else resumed).take({RISING["kl"]: value})
        if step == 6:
            stopped.raised.add("repeated_states")
            resumed.load_state_dict(stopped.state_dict())
    assert resumed.compare() == whole.compare() == {"kl": True}
    assert resumed.raised == {"repeated_states"}


class Scripted(L.LightningModule):
    """Logs the losses and the ratio it is told to."""

    def __init__(self, losses: list[float], ratio: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.losses, self.ratio = losses, ratio

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.weight.sum() * self.losses[self.global_step]
        self.log_dict({"train/objective/loss": loss, "train/objective/ratio_max": self.ratio}, batch_size=1)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_leaving_a_range_is_counted_and_warned_of_once_and_it_only_watches() -> None:
    limits = {"train/objective/ratio_max": [None, 10.0], "train/absent": [0.0, 1.0]}
    watched, alone = Scripted([1.0, 2.0, 3.0], ratio=25.0), Scripted([1.0, 2.0, 3.0], ratio=25.0)
    with pytest.warns(UserWarning, match=r"ratio_max is 25 at step 1, outside of \[None, 10.0\]") as said:
        trainer = fit(watched, Health(limits=limits))
    assert sum("ratio_max" in str(warning.message) for warning in said) == 1
    assert trainer.callback_metrics["train/health/objective_ratio_max"] == 1
    assert "train/health/absent" not in trainer.callback_metrics
    fit(alone)
    assert torch.equal(watched.weight, alone.weight)


def test_within_the_range_the_count_is_zero() -> None:
    trainer = fit(Scripted([1.0] * 2), Health(limits={"train/objective/ratio_max": [0.5, 10.0]}))
    assert trainer.callback_metrics["train/health/objective_ratio_max"] == 0
