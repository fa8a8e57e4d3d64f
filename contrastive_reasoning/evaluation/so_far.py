"""What is known of an evaluation while its completions are being written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from contrastive_reasoning.rollout.base import Written
from contrastive_reasoning.rollout.batch import RolloutBatch, judge
from contrastive_reasoning.tasks.base import Problem, Task, Verdict

GREEDY, SAMPLED = "verifier/accuracy", "verifier/accuracy_sampled"
"""The metrics that are followed, by the completions that they are over."""
Rates = Callable[[], Mapping[str, float]]
"""Metric → its value over what is written so far; short completions come first."""
Watch = Callable[[int, Rates], None]
"""Told how many problems' worth of completions are written, and whom to ask for the success so far."""


class SoFar:
    """Counts completions as they are written, and judges them once somebody asks; none is judged twice.

    Args:
        task: judges.
        own: the problems of this rank, at least one.
        count: problems of all ranks, which are taken to be as far as this one.
        samples: completions of each problem beside the greedy one.
        watch: who is told; None: nobody.
    """

    def __init__(self, task: Task, own: Sequence[Problem], *, count: int, samples: int, watch: Watch | None) -> None:
        self.task, self.own, self.count, self.watch = task, own, count, watch
        self._all = len(own) * (1 + samples)
        self._written = 0
        self._waiting: list[tuple[str, int, Problem, str]] = []
        self._known: dict[str, dict[int, Verdict]] = {GREEDY: {}, SAMPLED: {}}

    def listener(self, metric: str, group_size: int) -> Written | None:
        """For an engine that writes ``group_size`` completions of each problem for ``metric``."""
        watch = self.watch
        if watch is None:
            return None

        def written(row: int, text: str) -> None:
            self._waiting.append((metric, row, self.own[row // group_size], text))
            self._written += 1
            watch(self._written * self.count // self._all, self.rates)

        return written

    def rates(self) -> dict[str, float]:
        """The share of correct ones among the completions written so far, of the kinds that there are."""
        waiting, self._waiting = self._waiting, []
        verdicts = judge(self.task, [problem for *_, problem, _ in waiting], [text for *_, text in waiting])
        for (metric, row, *_), verdict in zip(waiting, verdicts, strict=True):
            self._known[metric][row] = verdict
        return {
            metric: mean(float(verdict.correct) for verdict in known.values())
            for metric, known in self._known.items()
            if known
        }

    def verdicts(self, metric: str, rollouts: RolloutBatch) -> list[Verdict]:
        """On every rollout that was written for ``metric``."""
        known = self._known[metric]
        rows = [row for row in range(len(rollouts)) if row not in known]
        problems = [rollouts.problem_of(row) for row in rows]
        known |= zip(rows, judge(self.task, problems, [rollouts.texts[row] for row in rows]), strict=True)
        return [known[row] for row in range(len(rollouts))]
