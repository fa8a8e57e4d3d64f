"""Warnings about metrics that leave their usual range, and alarms for signs that step credit is gamed.

    … │ W batches before │ W batches now │    rise of a metric: its mean now − its mean before,
                                              in standard errors √((variance now + variance before)/W)

Four alarms: a metric rises by more than ``threshold``, while success rises by less than one standard error or falls.
Without verdicts they are not logged.

    process_return_alone    the mean value of a rollout's steps
    steps_per_rollout       valued steps per rollout
    repeated_states         the share of steps that lead back to a state of the same rollout
    kl                      the distance of the policy from its reference

``outcome_correlation``: within groups, the values of steps contradict the verdict, mean < −threshold · √(variance/W)

An alarm is a reason to inspect a run, not a verdict: a metric may rise for a good reason too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from contrastive_reasoning.progress import step_is_logged, steps_done
from contrastive_reasoning.ranges import above, at_least

RETURN, SUCCESS, CORRELATION = "train/steps/return", "train/verdict/ok", "train/steps/outcome_correlation"
RISING = {
    "process_return_alone": RETURN,
    "steps_per_rollout": "train/reward/steps",
    "repeated_states": "train/steps/repeated",
    "kl": "train/objective/kl",
}
"""Alarm → the metric that must not rise while success does not."""
SENTENCES = {
    "process_return_alone": "the values of steps rise while success does not",
    "outcome_correlation": "the values of steps are higher in rollouts that the verifier marks as wrong",
    "steps_per_rollout": "rollouts have more steps than before while success does not rise",
    "repeated_states": "rollouts come back to the same states more often while success does not rise",
    "kl": "the policy moves away from its reference while success does not rise",
}
NO_RISE = 1.0
"""Standard errors: success that rises by less counts as not rising."""


class Alarms(L.Callback):
    """Logs ``train/alarm/<name>``, 1 while it is raised, else 0, once two windows of its metrics are full.

    The first time an alarm is raised, a warning names it with the step. A step that did not log a metric adds nothing
    to its window. The windows are in the checkpoint. Only watches.

    Reads ``result`` and ``rollout_step`` of GRPO; other modules have no alarms.

    Args:
        window: W, the number of rollout batches that logged the metric.
        threshold: in standard errors.

    Raises:
        ValueError: for a window below 2 or a threshold that is not positive.
    """

    def __init__(self, *, window: int, threshold: float) -> None:
        at_least(2, **{"callbacks.alarms.window": window})
        above(0, **{"callbacks.alarms.threshold": threshold})
        self.window = window
        self.threshold = threshold
        self.seen: dict[str, list[float]] = {}
        """The last 2·W values of every metric, oldest first."""
        self.raised: set[str] = set()
        """Alarms that were reported."""

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Adds what the step has logged, and compares the windows."""
        # not trainer.callback_metrics, which keeps the last value of a metric that this step did not log
        self.take(pl_module.result.metrics if hasattr(pl_module, "result") else {})
        for name, raised in self.compare().items():
            pl_module.log(f"train/alarm/{name}", float(raised), batch_size=1)
            if raised and name not in self.raised:
                self.raised.add(name)
                sentence = f"alarm at step {pl_module.rollout_step}: {SENTENCES[name]}"
                rank_zero_warn(f"{sentence} (train/alarm/{name} is 1 while it is raised)")

    def take(self, metrics: Mapping[str, Any]) -> None:
        """Adds this step's values to the windows."""
        for name in (SUCCESS, CORRELATION, *RISING.values()):
            if name in metrics:
                self.seen[name] = [*self.seen.get(name, []), float(metrics[name])][-2 * self.window :]

    def compare(self) -> dict[str, bool]:
        """Alarm → raised, for alarms whose metrics fill both windows."""
        full = {name: values for name, values in self.seen.items() if len(values) == 2 * self.window}
        rises = {name: rise(v[: self.window], v[self.window :]) for name, v in full.items()}
        found = {
            alarm: rises[name] > self.threshold and rises[SUCCESS] < NO_RISE
            for alarm, name in RISING.items()
            if name in rises and SUCCESS in rises
        }
        if CORRELATION in full:
            now = full[CORRELATION][self.window :]
            found["outcome_correlation"] = in_errors(fmean(now), variance(now) / self.window) < -self.threshold
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"seen": {name: list(values) for name, values in self.seen.items()}, "raised": sorted(self.raised)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seen = {name: list(values) for name, values in state_dict["seen"].items()}
        self.raised = set(state_dict["raised"])


def rise(before: Sequence[float], now: Sequence[float]) -> float:
    """The rise of the mean in standard errors, from one window to the next of the same size."""
    return in_errors(fmean(now) - fmean(before), (variance(now) + variance(before)) / len(now))


def in_errors(difference: float, squared_error: float) -> float:
    """A difference in standard errors; infinite if the error is 0 and the difference is not."""
    if squared_error > 0:
        return difference / math.sqrt(squared_error)
    return 0.0 if difference == 0 else math.copysign(math.inf, difference)


class Health(L.Callback):
    """Logs ``train/health/<part>_<quantity>``, 1 outside the range, else 0; the first one also warns. Only watches.

    Args:
        limits: metric → [low, high], either of them None for open.
    """

    def __init__(self, *, limits: Mapping[str, Sequence[float | None]]) -> None:
        for name, limit in limits.items():
            if len(limit) != 2:
                raise ValueError(f"callbacks.health.limits of {name} must be [low, high], got {list(limit)}")
        self.limits = {name: (limit[0], limit[1]) for name, limit in limits.items()}
        self._warned: set[str] = set()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Checks what the step has logged."""
        # callback_metrics keep the last value of a metric that this step did not log
        logged: Mapping[str, Any] = trainer.callback_metrics if step_is_logged(trainer) else {}
        measured: Mapping[str, Any] = pl_module.result.metrics if hasattr(pl_module, "result") else logged
        values: dict[str, float] = {}
        for name, (low, high) in self.limits.items():
            if name not in measured:
                continue
            value, counted = float(measured[name]), "train/health/" + name.removeprefix("train/").replace("/", "_")
            outside = math.isnan(value) or (low is not None and value < low) or (high is not None and value > high)
            values[counted] = float(outside)
            if outside and name not in self._warned:
                self._warned.add(name)
                rank_zero_warn(
                    f"{name} is {value:.4g} at step {steps_done(trainer, pl_module)}, outside of [{low}, {high}]; "
                    f"{counted} counts how often"
                )
        if values:
            getattr(pl_module, "report_step", pl_module.log_dict)(values, batch_size=1)
