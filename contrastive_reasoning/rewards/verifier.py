"""Rewards of whole completions: for correctness, readable answers and length, and a benchmark's own scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contrastive_reasoning.ranges import at_least, within
from contrastive_reasoning.rewards.base import Credit, FailureWarning, failure_metrics, fill_with_mean
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task, Verdict


class VerifierReward:
    """1 for a correct completion, 0 for any other.

    A completion whose verdict is ``error`` is left out, because it is neither correct nor wrong. A timeout counts as 0.
    """

    verifies = True
    """Its credit has verdicts."""

    def __init__(self, *, task: Task) -> None:
        self.task = task
        self._warn = FailureWarning("the verifier")

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = verdicts_of(self.task, rollouts)
        credit = credit_of_judged("verifier", [verdict.correct for verdict in verdicts], verdicts, rollouts)
        self._warn(credit.failures)
        return credit


@dataclass(kw_only=True, eq=False)
class FormatReward:
    """1 if the completion ended by itself and its answer could be read, correct or not; else 0.

    It does not depend on correctness, so its weight should be well below that of the verifier. A completion whose
    verdict is ``error`` is left out.
    """

    task: Task

    verifies = True
    """Its credit has verdicts."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = verdicts_of(self.task, rollouts)
        readable = [
            verdict.status in ("ok", "wrong") and finish == "stop"
            for verdict, finish in zip(verdicts, rollouts.finish_reasons, strict=True)
        ]
        return credit_of_judged("format", readable, verdicts, rollouts)


def credit_of_judged(name: str, earned: Sequence[bool], verdicts: Sequence[Verdict], rollouts: RolloutBatch) -> Credit:
    """Returns a credit of 1 if ``earned``, else 0; a completion whose judging failed is left out."""
    failures = {row: verdict for row, verdict in enumerate(verdicts) if not verdict.judged}
    rows = zip(earned, verdicts, strict=True)
    values = fill_with_mean([float(value) if verdict.judged else None for value, verdict in rows])
    outcome = rollouts.old_log_probs.new_tensor(values)
    return Credit(
        outcome=outcome,
        parts={name: outcome},
        verdicts=verdicts,
        failures=failures,
        metrics=failure_metrics(failures, len(rollouts)),
    )


@dataclass(kw_only=True, eq=False)
class OverlongReward:
    """DAPO's soft overlong punishment, arXiv:2503.14476, of the completion's length in tokens, end token included:

                 0                              |y| ≤ L_max − L_cache
        r(y) =   (L_max − L_cache − |y|) / L_cache     up to L_max
                 −1                             beyond

    Without it a completion that is cut off at the limit is punished as a whole, although it may have been sound. It
    does not depend on correctness and can be added to any reward by a ``WeightedSum``.

    Raises ValueError for a setting outside its range.
    """

    max_tokens: int
    """L_max, usually the token limit of a completion; −1 is then reached exactly at the limit."""
    cache_share: float
    """L_cache / L_max in (0, 1], the range over which the punishment grows."""

    def __post_init__(self) -> None:
        at_least(1, max_tokens=self.max_tokens)
        within("(0, 1]", cache_share=self.cache_share)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        lengths = rollouts.mask.sum(dim=1).to(rollouts.old_log_probs.dtype)
        cache = self.cache_share * self.max_tokens
        outcome = ((self.max_tokens - cache - lengths) / cache).clamp(-1.0, 0.0)
        return Credit(outcome=outcome, parts={"overlong": outcome})


@dataclass(kw_only=True, eq=False)
class TaskScoreReward:
    """One of a benchmark's own scores of a completion, in the score's own range: LongProc's accuracy, for example.

    Raises ValueError, when called, for a score that the task does not have.
    """

    task: Task
    """It computes the scores."""
    score: str
    """The score's name, for example ``longproc/accuracy``; the part is then named ``longproc_accuracy``."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values = [self._value(rollouts, row) for row in range(len(rollouts))]
        outcome = rollouts.old_log_probs.new_tensor(values)
        return Credit(outcome=outcome, parts={self.score.replace("/", "_"): outcome})

    def _value(self, rollouts: RolloutBatch, row: int) -> float:
        scores = self.task.scores(rollouts.problem_of(row), rollouts.texts[row])
        if self.score not in scores:
            known = ", ".join(sorted(scores)) or "none"
            raise ValueError(f"the task {self.task.name} has no score {self.score!r}; it has {known}")
        return scores[self.score]
