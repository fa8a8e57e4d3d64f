"""What becomes of rollouts that a reward could not reward: a few are left out, too many end the run."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.tasks.base import Verdict

STATUSES = ("timeout", "error")
"""Of a :class:`Verdict` on a reward's failure; ``reason`` says what it failed with."""


FEWEST, MOST = 20, 1000
"""Completions that have a share of errors: of fewer, a table's examples say, one is much; older ones are past."""
ALL = 4
"""So many, of which none could be judged, need not be more."""


class RewardFailed(RuntimeError):
    """So many rollouts were not rewarded that what is left is not the batch that was drawn."""


class VerifierFailed(RewardFailed):
    """A verifier cannot go on, on this rank alone: no other knows."""


def checked_share(max_failures: float) -> float:
    """The same share of rollouts.

    Raises:
        ValueError: if it is none.
    """
    if not 0 <= max_failures <= 1:
        raise ValueError(f"max_failures must lie in [0, 1], got {max_failures}")
    return max_failures


def refuse_too_many(failures: Mapping[int, Verdict], rollouts: int, *, limit: float) -> None:
    """Refuse a batch of which more than the share ``limit`` has no reward; of several ranks all of theirs together.

    Args:
        failures: of this rank's rollouts.
        rollouts: how many this rank has.
        limit: share of the whole batch.

    Raises:
        RewardFailed: with the share, the limit and the first cause, on every rank.
    """
    first = failures[min(failures)] if failures else None
    found = gather((len(failures), rollouts, first))
    failed, drawn = sum(count for count, _, _ in found), sum(count for _, count, _ in found)
    if failed <= limit * drawn:
        return
    cause = next(verdict for _, _, verdict in found if verdict is not None)
    raise RewardFailed(
        f"the reward failed on {failed} of {drawn} rollouts ({failed / drawn:.0%}), more than "
        f"reward.max_failures={limit:g} allows; the first: {cause.status}, {cause.reason}"
    )


class ErrorShare:
    """How many of the last ``MOST`` verdicts of a verifier on this rank were errors: an error is the judge's doing.

    Not of a call: how many completions are judged together is chance, and in an evaluation the progress display's.

    Args:
        limit: the share that may be errors, once there are ``FEWEST`` verdicts, or ``ALL`` and no other.
        of: what was judged, in the plural.
        key: of the configuration, what sets the limit.

    Raises:
        ValueError: for a limit that is no share.
    """

    def __init__(self, limit: float, *, of: str, key: str) -> None:
        self.limit = checked_share(limit)
        self.of = of
        self.key = key
        self._errors: deque[bool] = deque()
        self._failed = 0
        """How many of them are."""
        self._last = ""
        """The reason of the last one."""

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Count them.

        Raises:
            VerifierFailed: with the share, the limit and the last cause, as soon as they are too many.
        """
        for verdict in verdicts:
            if len(self._errors) == MOST:
                self._failed -= self._errors.popleft()
            self._errors.append(not verdict.judged)
            self._failed += not verdict.judged
            self._last = self._last if verdict.judged else verdict.reason
            if self._too_many():
                raise VerifierFailed(
                    f"the verifier failed on {self._failed} of the last {len(self._errors)} {self.of}, more than "
                    f"{self.key}={self.limit:g} allows; the last time: {self._last}"
                )

    def _too_many(self) -> bool:
        judged = len(self._errors)
        enough = judged >= FEWEST or self._failed == judged >= ALL
        return enough and self._failed > self.limit * judged


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


def filled(numbers: Sequence[float | None]) -> list[float]:
    """The mean of the others (0 where there are none) in place of each None: it moves no mean that is logged."""
    given = [number for number in numbers if number is not None]
    mean = sum(given) / len(given) if given else 0.0
    return [mean if number is None else number for number in numbers]


def failure_metrics(failures: Mapping[int, Verdict], rollouts: int) -> dict[str, float]:
    """The share of rollouts without a reward, and that of each status; logged under ``train/``."""
    statuses = [verdict.status for verdict in failures.values()]
    shares = {f"reward/failed_{status}": statuses.count(status) / rollouts for status in STATUSES}
    return {"reward/failed": len(failures) / rollouts, **shares}
