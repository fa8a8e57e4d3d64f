"""Errors for too many failures of a reward or a verifier, and the limit on a verifier's share of errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from contrastive_reasoning.errors import EndsRun
from contrastive_reasoning.ranges import within
from contrastive_reasoning.tasks.base import Verdict

FEWEST, MOST = 20, 1000
"""The number of verdicts behind a share of errors: among fewer, one error is a large share; older ones are dropped."""
ALL = 4
"""The number of verdicts that suffices if all of them are errors."""


class RewardFailed(EndsRun):
    """Raised if so many rollouts have no reward that the others no longer represent the batch."""


class VerifierFailed(RewardFailed):
    """Raised if a verifier failed too often on this rank. It is raised on this rank only."""

    alone = True


class ErrorShare:
    """The share of errors among the last ``MOST`` verdicts of a verifier on this rank, and the limit on it.

    The share is not taken per call, because the number of completions judged together is arbitrary. The limit applies
    from ``FEWEST`` verdicts on, or from ``ALL`` verdicts on if all of them are errors. ``of`` names what was judged,
    and ``key`` names the setting of the limit.
    """

    def __init__(self, limit: float, *, of: str, key: str) -> None:
        within("[0, 1]", max_failures=limit)
        self.limit = limit
        self.of = of
        self.key = key
        self._errors: deque[bool] = deque(maxlen=MOST)
        self._last = ""
        """The reason of the last error."""

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Counts the verdicts.

        Raises VerifierFailed with the number of errors, the limit and the last cause, as soon as there are too many.
        """
        for verdict in verdicts:
            self._errors.append(not verdict.judged)
            self._last = self._last if verdict.judged else verdict.reason
            failed, judged = sum(self._errors), len(self._errors)
            enough = judged >= FEWEST or failed == judged >= ALL
            if enough and failed > self.limit * judged:
                raise VerifierFailed(
                    f"the verifier failed on {failed} of the last {judged} {self.of}, more than "
                    f"{self.key}={self.limit:g} allows; the last time: {self._last}"
                )
