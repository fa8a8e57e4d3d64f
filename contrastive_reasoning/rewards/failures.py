"""What becomes of rollouts that a reward could not reward: a few are left out, too many end the run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from contrastive_reasoning.tasks.base import Verdict

STATUSES = ("timeout", "error")
"""Of a :class:`Verdict` on a reward's failure; ``reason`` says what it failed with."""


class RewardFailed(RuntimeError):
    """So many rollouts were not rewarded that what is left is not the batch that was drawn."""


def checked_share(max_failures: float) -> float:
    """The same share of rollouts.

    Raises:
        ValueError: if it is none.
    """
    if not 0 <= max_failures <= 1:
        raise ValueError(f"max_failures must lie in [0, 1], got {max_failures}")
    return max_failures


def refuse_too_many(failures: Mapping[int, Verdict], rollouts: int, *, limit: float) -> None:
    """Refuse a batch of which more than the share ``limit`` has no reward.

    Raises:
        RewardFailed: with the share, the limit and the first cause.
    """
    if len(failures) <= limit * rollouts:
        return
    first = failures[min(failures)]
    raise RewardFailed(
        f"the reward failed on {len(failures)} of {rollouts} rollouts ({len(failures) / rollouts:.0%}), more than "
        f"reward.max_failures={limit:g} allows; the first: {first.status}, {first.reason}"
    )


class Warned:
    """Says the first failure of each status; all are counted in the metrics.

    Args:
        key: of the configuration, what failed.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self._said: set[str] = set()

    def __call__(self, failures: Mapping[int, Verdict]) -> None:
        for verdict in failures.values():
            if verdict.status not in self._said:
                self._said.add(verdict.status)
                warnings.warn(
                    f"{self.key} failed on a rollout, which is left out; this is said once, the share is "
                    f"train/reward/failed_{verdict.status}: {verdict.reason}",
                    stacklevel=3,
                )


def failure_metrics(failures: Mapping[int, Verdict], rollouts: int) -> dict[str, float]:
    """The share of rollouts without a reward, and that of each status; logged under ``train/``."""
    statuses = [verdict.status for verdict in failures.values()]
    shares = {f"reward/failed_{status}": statuses.count(status) / rollouts for status in STATUSES}
    return {"reward/failed": len(failures) / rollouts, **shares}
