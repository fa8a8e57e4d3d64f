"""Alarms of step credit and ranges of metrics."""

from __future__ import annotations

import random
from statistics import mean, stdev
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from callbacks.health import CORRELATION, RETURN, RISING, SUCCESS, Alarms, Health, rise
from lightning_modules.grpo import StepResult
from tests.quiet import quiet_trainer

W = 5
NAMES = {"returns": RETURN, "success": SUCCESS, "correlation": CORRELATION, **RISING}
RATIO = "train/objective/ratio_max"


def noisy(level: float, later: float, seed: int) -> list[float]:
    """2·W values: around ``level`` in the first half and around ``later`` in the second."""
    rng = random.Random(seed)
    return [rng.gauss(level if step < W else later, 0.01) for step in range(2 * W)]


def alarms() -> Alarms:
    return Alarms(window=W, threshold=4.0)


UP, FLAT, DOWN = noisy(0.3, 0.5, 0), noisy(0.3, 0.3, 1), noisy(0.5, 0.3, 2)
SLOWER = noisy(0.3, 0.315, 1)


@pytest.mark.parametrize(
    ("series", "raised"),
    [
        ({"returns": UP, "success": FLAT}, {"process_return_alone": True}),
        ({"returns": UP, "success": DOWN}, {"process_return_alone": True}),
        ({"returns": UP, "success": UP}, {"process_return_alone": False}),
        ({"returns": FLAT, "success": FLAT}, {"process_return_alone": False}),
        ({"returns": UP, "success": SLOWER}, {"process_return_alone": False}),  # a rise, below the threshold
        *[({name: UP}, {}) for name in RISING],  # success is not logged
        ({"correlation": noisy(0.2, -0.2, 0)}, {"outcome_correlation": True}),
        ({"correlation": noisy(-0.2, 0.2, 0)}, {"outcome_correlation": False}),
        ({"correlation": noisy(0.0, -0.001, 3)}, {"outcome_correlation": False}),  # its interval contains 0
        *[
            ({name: values, "success": success}, {name: values is UP and success is not UP})
            for name in RISING
            for values in (UP, FLAT, DOWN)
            for success in (UP, FLAT, DOWN)
        ],
    ],
)
def test_alarms_compare_returns_raised_alarms(series: dict[str, list[float]], raised: dict[str, bool]) -> None:
    found = alarms()
    for step in range(2 * W):
        found.take({NAMES[name]: values[step] for name, values in series.items()})
    assert found.compare() == raised


def test_rise_equals_difference_of_means_in_standard_errors() -> None:
    before, now = UP[:W], UP[W:]
    error = ((stdev(before) ** 2 + stdev(now) ** 2) / W) ** 0.5
    assert rise(before, now) == pytest.approx((mean(now) - mean(before)) / error)
    assert rise([0.0] * W, [0.0] * W) == 0.0
    assert rise([0.0] * W, [1.0] * W) == float("inf")


def test_alarms_use_only_last_two_windows_and_resume_from_state() -> None:
    whole, resumed, found = alarms(), alarms(), []
    for step, value in enumerate([*UP, *noisy(0.5, 0.5, 4)]):
        for each in (whole, resumed):
            each.take({RISING["kl"]: value, SUCCESS: 0.3})
        found.append(whole.compare().get("kl"))
        assert resumed.compare() == whole.compare()
        if step == 6:
            whole.raised.add("repeated_states")
            resumed = alarms()
            resumed.load_state_dict(whole.state_dict())
    assert found[: 2 * W] == [None] * (2 * W - 1) + [True]
    assert found[-1] is False
    assert resumed.raised == {"repeated_states"}


class Scripted(L.LightningModule):
    """Logs these series at every ``every``-th step."""

    def __init__(self, every: int = 1, **series: list[float]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.every, self.series = every, {NAMES.get(name, RATIO): values for name, values in series.items()}
        self.rollout_step = 100

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        metrics = {name: values[batch_idx] for name, values in self.series.items()}
        self.result = StepResult(metrics=metrics if batch_idx % self.every == 0 else {})
        self.rollout_step += 1
        self.log_dict(self.result.metrics, batch_size=1)
        return (self.weight * batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module: Scripted, *callbacks: L.Callback) -> dict[str, Any]:
    steps = len(next(iter(module.series.values())))
    trainer = quiet_trainer(max_steps=steps, callbacks=[*callbacks])
    trainer.fit(module, DataLoader(torch.ones(steps, 1), batch_size=1))  # type: ignore[arg-type]
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


RISES = [0.3 + 0.05 * step + 0.001 * (step % 2) for step in range(4 * W)]
STAYS = [0.2 + 0.01 * (step % 3) for step in range(4 * W)]


def test_alarm_is_logged_warns_once_and_leaves_weights_unchanged() -> None:
    watched, alone = Scripted(returns=RISES, success=STAYS), Scripted(returns=RISES, success=STAYS)
    with pytest.warns(UserWarning, match=r"alarm at step 110") as caught:
        logged = fit(watched, alarms(), Health(limits={RETURN: [None, 0.0]}))
    assert sum("alarm at step" in str(warning.message) for warning in caught) == 1
    assert logged["train/alarm/process_return_alone"] == 1
    assert "train/alarm/kl" not in logged
    fit(alone)
    assert torch.equal(watched.weight, alone.weight)


def test_alarms_add_sparse_metric_once_per_logged_step() -> None:
    """The metric is logged at steps 0, 3, 6 …: 9 values in 27 steps. Two windows have 10."""
    found, values = alarms(), [-0.2 - 0.01 * step for step in range(27)]
    logged = fit(Scripted(every=3, correlation=values), found)
    assert found.seen[CORRELATION] == pytest.approx(values[::3])
    assert logged[CORRELATION] == pytest.approx(-0.2 - 0.24), "Lightning has the last one still"
    assert "train/alarm/outcome_correlation" not in logged


@pytest.mark.parametrize(("low", "outside"), [(30.0, 1), (None, 0)])
def test_health_logs_metric_outside_limits_and_warns_once(
    low: float | None, outside: int, recwarn: pytest.WarningsRecorder
) -> None:
    logged = fit(Scripted(ratio=[25.0] * 4), Health(limits={RATIO: [low, 100.0], "train/absent": [0.0, 1.0]}))
    messages = [str(warning.message) for warning in recwarn if "ratio_max is" in str(warning.message)]
    assert len(messages) == outside
    assert not messages or "ratio_max is 25 at step 101, outside of [30.0, 100.0]" in messages[0]
    assert logged["train/health/objective_ratio_max"] == outside
    assert "train/health/absent" not in logged
