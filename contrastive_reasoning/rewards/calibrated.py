"""A critic's or an oracle's logits as P(success | state) of the current policy, learned from its own verified rollouts.

    values = curve_depth(f/τ)        curve: refitted every few batches to the last few batches' (logit, depth, success)

A critic knows what some player can reach, the oracle what a perfect one can; what this policy can finish is another
thing, and changes while it learns.
A batch is valued, and the curves are judged by it, before they learn from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.critics.calibration import Calibration, Examples
from contrastive_reasoning.critics.reliability import brier_score, expected_calibration_error
from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.critic import on_steps
from contrastive_reasoning.rewards.shaping import StepValue, beginnings, depth_of, legal_steps, start_of
from contrastive_reasoning.rewards.visited_states import visited_states
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Step, Task

BINS = 15
"""Of the calibration error."""
FINISHED = 1
"""Numbers left when no move is: such a state's success is known, and flatters every figure."""


@runtime_checkable
class LogitSource(Protocol):
    """What can be calibrated: logits of states apart from the credit that is made of them."""

    task: Task

    def step_logits(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[Float[Tensor, "M _"]]:
        """Of every step of every rollout, by each of M members."""
        ...

    def start_logits(self, rollouts: RolloutBatch) -> Float[Tensor, "M P"] | None:
        """Of each problem before any step; None where that is not known."""
        ...

    def credit(
        self,
        rollouts: RolloutBatch,
        logits: Sequence[Float[Tensor, "M _"]],
        values: Sequence[Sequence[StepValue]],
        starts: Sequence[float] | None,
    ) -> Credit:
        """The outcome's credit with these values of steps and starts, for which ``logits`` were found."""
        ...


class CalibratedReward:
    """``source`` with calibrated probabilities for values of steps and starts; it learns with every call.

    Logged are ``critic/ece`` and ``critic/brier``, over the states of the batch that leave a move, each weighted by the
    rollouts through it. Of an ensemble the members' mean logit is calibrated.

    Args:
        source: asks the critic or the oracle; its outcome must verify.
        calibration: the curves.
        batches: the last rollout batches that the curves are fitted to.
        refit_every: rollout batches between fits; the first batch is fitted to at once.
        warmup_steps: rollout batches at the beginning from which only the curves learn.

    Raises:
        ValueError: for a number below 1 (``warmup_steps``: below 0).
    """

    reads_verdicts = True
    """Of no use where no part of the reward verifies."""
    reads_all_groups = True
    """Chances fitted to groups that were chosen for their verdicts would be too near one half."""

    def __init__(
        self, *, source: LogitSource, calibration: Calibration, batches: int, refit_every: int, warmup_steps: int
    ) -> None:
        for name, value, least in (
            ("batches", batches, 1),
            ("refit_every", refit_every, 1),
            ("warmup_steps", warmup_steps, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        self.source = source
        self.calibration = calibration
        self.refit_every = refit_every
        self.warmup_steps = warmup_steps
        self.seen: deque[Examples] = deque(maxlen=batches)
        """The last batches, oldest first."""
        self.calls = 0
        """Rollout batches rewarded."""
        self.foreseen: Examples | None = None
        """The last batch as a critic values it that is to take over."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        steps = legal_steps(self.source.task, rollouts)
        members = self.source.step_logits(rollouts, steps)
        logits, starts = _means(members), self._starts(rollouts)
        values = on_steps(steps, self._calibrated(steps, beginnings(rollouts), logits))
        credit = self.source.credit(rollouts, members, values, self._of_starts(rollouts, starts))
        # of all ranks, whose curves stay equal
        fresh = _joined(gather(visited_states(rollouts, steps, logits, starts, correct_of(credit), credit.failures)))
        credit = replace(credit, metrics={**credit.metrics, **self._reliability(fresh)})
        self._learn(fresh)
        return credit

    def foresee(self, rollouts: RolloutBatch) -> None:
        """Keep what the source says of a verified batch: call it while the critic that is to come stands in the source.

        On ranks all must ask.
        """
        steps = legal_steps(self.source.task, rollouts)
        logits, starts = _means(self.source.step_logits(rollouts, steps)), self._starts(rollouts)
        verdicts = verdicts_of(self.source.task, rollouts)
        correct = torch.tensor([verdict.correct for verdict in verdicts])
        unjudged = {row for row, verdict in enumerate(verdicts) if not verdict.judged}
        self.foreseen = _joined(gather(visited_states(rollouts, steps, logits, starts, correct, unjudged)))

    def begin_anew(self) -> None:
        """Another critic gives the logits from here on: curves of what was foreseen of it, none of the former one's.

        Without anything foreseen the curves stay, and what is seen from here on mixes with what was.
        """
        if self.foreseen is not None:
            self.seen.clear()
            self.seen.append(self.foreseen)
            self.calibration.fit(self.foreseen)
            self.foreseen = None

    def state_dict(self) -> dict[str, Any]:
        """Curves, examples and count: tensors and numbers."""
        seen = [dict(vars(examples)) for examples in self.seen]
        foreseen = None if self.foreseen is None else dict(vars(self.foreseen))
        calibration = self.calibration.state_dict()
        return {"calibration": calibration, "seen": seen, "calls": self.calls, "foreseen": foreseen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calibration.load_state_dict(state["calibration"])
        self.seen.clear()
        self.seen.extend(Examples(**columns) for columns in state["seen"])
        self.calls = state["calls"]
        self.foreseen = None if state["foreseen"] is None else Examples(**state["foreseen"])

    def _starts(self, rollouts: RolloutBatch) -> list[float] | None:
        """The mean logit of each problem before any step."""
        members = self.source.start_logits(rollouts)
        return None if members is None else members.mean(dim=0).tolist()

    def _calibrated(
        self, steps: Sequence[Sequence[Step]], begun: Sequence[Step | None], logits: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """Probabilities of the steps of every rollout, which began in a state or in none."""
        rows = zip(steps, begun, strict=True)
        depths = [depth_of(step, index, start) for row, start in rows for index, step in enumerate(row)]
        flat = torch.tensor([logit for row in logits for logit in row], dtype=torch.float64)
        values = self.calibration(flat, torch.tensor(depths, dtype=torch.long))
        return [part.tolist() for part in values.split([len(row) for row in logits])]

    def _of_starts(self, rollouts: RolloutBatch, logits: Sequence[float] | None) -> list[float] | None:
        """Probabilities of each problem before any step."""
        if logits is None:
            return None
        starts = [start for problem in rollouts.problems if (start := start_of(problem)) is not None]
        values = self._calibrated([[start] for start in starts], starts, [[logit] for logit in logits])
        return [value for (value,) in values]

    def _reliability(self, fresh: Examples) -> dict[str, float]:
        undecided = fresh.of(fresh.depth != FINISHED)
        if not len(undecided.logits):
            return {}
        predicted = self.calibration(undecided.logits, undecided.depth)
        against = (predicted, undecided.share, undecided.visits)
        return {
            "critic/ece": expected_calibration_error(*against, bins=BINS),
            "critic/brier": brier_score(*against),
        }

    def _learn(self, fresh: Examples) -> None:
        self.seen.append(fresh)
        self.calls += 1
        if self.calls % self.refit_every == 0 or not self.calibration.fitted:
            self.calibration.fit(_joined(self.seen))


def _means(members: Sequence[Float[Tensor, "M _"]]) -> list[list[float]]:
    return [row.mean(dim=0).tolist() for row in members]


def _joined(examples: Iterable[Examples]) -> Examples:
    first, *others = examples
    return first.joined(*others)


def correct_of(credit: Credit) -> Bool[Tensor, " B"]:
    """Which rollouts the verifier accepts.

    Raises:
        ValueError: where nothing was verified.
    """
    if credit.verdicts is None:
        named = ", ".join(credit.parts)
        raise ValueError(f"reward.source.outcome must verify completions; this one has {named} only")
    return torch.tensor([verdict.correct for verdict in credit.verdicts])
