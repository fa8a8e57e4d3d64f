"""Calibration of a critic's or an oracle's logits to P(success | state) of the current policy, from its own rollouts.

    values = curve_depth(f/τ)        curve: refitted every few batches to the last few batches' (logit, depth, success)

A critic estimates what some player can reach, and the oracle computes what a perfect player can reach. What the current
policy can finish differs from both and changes during training.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.critics.calibration import (
    Calibration,
    Examples,
    brier_score,
    expected_calibration_error,
    join_examples,
)
from contrastive_reasoning.distributed import gather
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import Credit, Reward, refuse_adding
from contrastive_reasoning.rewards.critic import on_steps
from contrastive_reasoning.rewards.step_values import (
    FINISHED,
    Steps,
    StepValue,
    depth_of,
    identity_of,
    mean,
    read_steps,
    start_of,
    start_steps,
)
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Step, Task

BINS = 15
"""The number of bins of the calibration error."""


@runtime_checkable
class LogitSource(Reward, Protocol):
    """A reward that can be calibrated: it computes the logits of states separately from the credit."""

    task: Task

    def state_logits(
        self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]
    ) -> tuple[Sequence[Float[Tensor, "M _"]], Float[Tensor, "M P"] | None]:
        """Returns the logits of every step of every rollout under each of M members, and those of each problem.

        The latter are of the state before any step; None if the source has none.
        """
        ...

    def credit(
        self,
        rollouts: RolloutBatch,
        steps: Steps,
        logits: Sequence[Float[Tensor, "M _"]],
        values: Sequence[Sequence[StepValue]],
        starts: Sequence[float] | None,
        *,
        weight: float,
    ) -> Credit:
        """Returns the outcome's credit with the given values of the legal steps and of the starts.

        ``logits`` are those of the legal steps. ``weight`` times a completion's mean value is added to its outcome.
        """
        ...


@dataclass(kw_only=True, eq=False)
class CalibratedReward:
    """``source`` with calibrated probabilities as the values of steps and starts; it learns with every call.

    Logs ``critic/ece`` and ``critic/brier`` over the states of the batch in which a move is left, because the success
    of a finished state is known. Each state is weighted by the number of rollouts through it. For an ensemble, the mean
    logit of the members is calibrated.

    Raises ValueError for a number below 1 (``warmup_steps``: below 0), and for a source with a non-zero weight.
    """

    source: LogitSource
    """The reward of the critic or the oracle; its outcome must verify. Its own weight must be 0, because what it adds
    to the outcome is not calibrated."""
    weight: float
    """Of the mean value of a completion's legal steps in its outcome; 0 leaves them to a per-step advantage."""
    calibration: Calibration
    """The curves."""
    batches: int
    """The number of last rollout batches that the curves are fitted to."""
    refit_every: int
    """Rollout batches between fits; the first fit follows the first batch."""
    warmup_steps: int
    """Rollout batches at the beginning from which only the curves learn."""

    values_steps = True
    reads_logits = True
    """Its ``source`` must be a ``LogitSource``."""
    reads_verdicts = True
    """The reward is useless if no part of it verifies."""
    reads_all_groups = True
    """Probabilities fitted to groups that were selected by their verdicts would be too close to one half."""

    def __post_init__(self) -> None:
        at_least(1, batches=self.batches, refit_every=self.refit_every)
        at_least(0, warmup_steps=self.warmup_steps)
        refuse_adding("CalibratedReward", self.source)
        self.seen: deque[Examples] = deque(maxlen=self.batches)
        """The last batches, oldest first."""
        self.calls = 0
        """The number of rollout batches rewarded so far."""
        self.foreseen: Examples | None = None
        """The last batch, with the logits of a critic that is about to replace the current one."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        steps = read_steps(self.source.task, rollouts)
        members, logits, starts = self._logits(rollouts, steps.legal)
        values, chances = self.chances(rollouts, steps.legal, logits, starts)
        credit = self.source.credit(
            rollouts, steps, members, on_steps(steps.legal, values), chances, weight=self.weight
        )
        if credit.verdicts is None:
            raise ValueError(f"reward.source.outcome must verify completions; this one has {credit.named} only")
        correct = torch.tensor([verdict.correct for verdict in credit.verdicts])
        own = visited_states(rollouts, steps.legal, logits, starts, correct, credit.failures)
        fresh = join_examples(gather(own))  # of all ranks, so that their curves stay equal
        credit = replace(credit, metrics={**credit.metrics, **self._reliability(fresh)})
        self._learn(fresh)  # last: the curves value a batch and are evaluated on it before they learn from it
        return credit

    def chances(
        self,
        rollouts: RolloutBatch,
        steps: Sequence[Sequence[Step]],
        logits: Sequence[Sequence[float]],
        starts: Sequence[float] | None,
    ) -> tuple[list[list[float]], list[float] | None]:
        """Returns the calibrated values of the steps of every rollout, and those of the P starts or None."""
        values = self._calibrate(depths_of(steps, start_steps(rollouts)), logits)
        if starts is None:
            return values, None
        before = [start for problem in rollouts.problems if (start := start_of(problem)) is not None]
        of_starts = self._calibrate(depths_of([[start] for start in before], before), [[logit] for logit in starts])
        return values, [value for (value,) in of_starts]

    def foresee(self, rollouts: RolloutBatch) -> None:
        """Stores the logits of a verified batch under the critic that will replace the current one.

        Call it while the source holds that critic. All ranks must call it.
        """
        steps = read_steps(self.source.task, rollouts).legal
        _, logits, starts = self._logits(rollouts, steps)
        verdicts = verdicts_of(self.source.task, rollouts)
        correct = torch.tensor([verdict.correct for verdict in verdicts])
        unjudged = {row for row, verdict in enumerate(verdicts) if not verdict.judged}
        self.foreseen = join_examples(gather(visited_states(rollouts, steps, logits, starts, correct, unjudged)))

    def begin_anew(self) -> None:
        """Fits the curves to the foreseen batch alone, because another critic computes the logits from now on.

        Without a foreseen batch the curves stay, and later batches are added to those of the former critic.
        """
        if self.foreseen is not None:
            self.seen.clear()
            self.seen.append(self.foreseen)
            self.calibration.fit(self.foreseen)
            self.foreseen = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the curves, the examples and the count as tensors and numbers."""
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

    def _logits(
        self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]
    ) -> tuple[Sequence[Float[Tensor, "M _"]], list[list[float]], list[float] | None]:
        """Returns the logits of the steps under each member, their means, and the means of the starts or None."""
        members, starts = self.source.state_logits(rollouts, steps)
        means = torch.cat(list(members), dim=1).mean(dim=0).split([row.shape[1] for row in members])
        return members, [row.tolist() for row in means], None if starts is None else starts.mean(dim=0).tolist()

    def _calibrate(self, depths: Sequence[Sequence[int]], logits: Sequence[Sequence[float]]) -> list[list[float]]:
        """Returns the probabilities of the steps of every rollout."""
        flat = torch.tensor([logit for row in logits for logit in row], dtype=torch.float64)
        values = self.calibration(flat, torch.tensor([depth for row in depths for depth in row], dtype=torch.long))
        return [part.tolist() for part in values.split([len(row) for row in logits])]

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
            self.calibration.fit(join_examples(self.seen))


def depths_of(steps: Sequence[Sequence[Step]], before: Sequence[Step | None]) -> list[list[int]]:
    """Returns the depths of the steps of every rollout, given the state before its first step or None."""
    rows = zip(steps, before, strict=True)
    return [[depth_of(step, index, start) for index, step in enumerate(row)] for row, start in rows]


class Visit(NamedTuple):
    """A rollout that reached a state; of several times the last."""

    row: int
    index: int | None
    """Of the step among the rollout's legal ones; None for the state before any step."""
    step: Step
    depth: int
    correct: bool


def visits_by_state(
    rollouts: RolloutBatch,
    steps: Sequence[Sequence[Step]],
    correct: Bool[Tensor, " B"],
    unjudged: Collection[int],
    *,
    starts: bool,
) -> list[list[Visit]]:
    """Returns the visits of each (problem, state), with ``starts`` including the problems' own states.

    A rollout counts once in a state, however often it returns to it. A rollout that was not judged does not count.
    ``steps`` are the legal ones.
    """
    visited: dict[tuple[int, object], list[Visit]] = {}
    for row, (right, start) in enumerate(zip(correct.tolist(), start_steps(rollouts), strict=True)):
        if row in unjudged:
            continue
        own = {
            identity_of(step): Visit(row, index, step, depth_of(step, index, start), right)
            for index, step in enumerate(steps[row])
        }
        if starts and start is not None:
            own[identity_of(start)] = Visit(row, None, start, depth_of(start, 0, start), right)
        for state, visit in own.items():
            visited.setdefault((row // rollouts.group_size, state), []).append(visit)
    return list(visited.values())


def success_share(visits: Sequence[Visit]) -> float:
    """Returns the share of the rollouts through a state that the verifier accepts."""
    return mean([float(visit.correct) for visit in visits])


def visited_states(
    rollouts: RolloutBatch,
    steps: Sequence[Sequence[Step]],
    logits: Sequence[Sequence[float]],
    starts: Sequence[float] | None,
    correct: Bool[Tensor, " B"],
    unjudged: Collection[int],
) -> Examples:
    """Returns each (problem, state) of ``visits_by_state`` once; problems' own states if their logits are given.

    The logit of a state is the mean over its visits, which differ if the critic reads more than the state. ``logits``
    are those of the legal steps, ``starts`` those of the P problems before any step.
    """
    before = starts or []

    def logit(visit: Visit) -> float:
        return before[visit.row // rollouts.group_size] if visit.index is None else logits[visit.row][visit.index]

    states = visits_by_state(rollouts, steps, correct, unjudged, starts=starts is not None)
    return Examples(
        logits=_column([mean([logit(visit) for visit in visits]) for visits in states]),
        depth=torch.tensor([visits[0].depth for visits in states], dtype=torch.long),
        share=_column([success_share(visits) for visits in states]),
        visits=_column([float(len(visits)) for visits in states]),
    )


def _column(values: Sequence[float]) -> Float[Tensor, " N"]:
    return torch.tensor(values, dtype=torch.float64)
