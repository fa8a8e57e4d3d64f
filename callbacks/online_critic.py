"""The closed loop: while a policy learns from a critic, the critic learns from the states that the policy meets.

    rollouts ──► their states, relabelled by hindsight ──► buffer (bounded, oldest out)
       ▲                                                      │  lessons every ``learn_every`` batches:
       │                                                      ▼  half of each step from here, half from pretraining
    policy ◄── reward ◄── copy that scores ◄── every ``refresh_every`` batches ── copy that learns

What is known of the policy's states is what its own completions wrote (``tasks.countdown.tried``). A value reached
under a state is a positive. One that was not is a dead end only where completions tried every move under the state.
Else it counts as an in-batch negative, as a goal of another trajectory, and where it is the state's own target not at
all: a wrong end does not prove that the target was out of reach. No oracle and no search of ours is asked about these
states. The other half is pretraining's stream with all that it knows; under ``datamodule=hindsight`` that is exhaustive
search, below states of random play.

In-batch negatives are many, and what the policy could have reached but did not is among them: values move from what is
in reach to what this policy reaches, and sink. Whether that helps is what ``auroc_before`` and ``auroc_after`` show.

A reward that calibrates the critic's values begins its curves anew at a refresh: fitted to the batch before it, as the
copy that takes over values that one. A trust gate on the advantage forgets what it saw of the former copy, and weighs
by that one's trust until it has seen enough of the new one.

Among the values that are remembered may be targets of held-out problems, reached by the way. No critic has a word in
the policy's test; but a critic that learned online is not to be measured on held-out problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from time import perf_counter
from typing import Any

import lightning as L

from callbacks.critic_lessons import CriticLessons
from contrastive_reasoning.advantages.trust_gate import TrustGate, refuse_stale_trust
from contrastive_reasoning.critics.met_states import MetStates
from contrastive_reasoning.distributed import TooManyLeftOut, dumped, gather, total
from contrastive_reasoning.rewards import CalibratedReward
from contrastive_reasoning.rewards.critic_within import critic_within, verdict_auroc
from contrastive_reasoning.rewards.shaping import legal_steps
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown.explored_states import State, known_states, moves_of

VERSION = 3
NAME = "train/online_critic/"


class OnlineCritic(L.Callback):
    """Trains a copy of the reward's critic beside the policy, and at a refresh lets the copy score.

    This callback acts, as the one does that draws rollouts; it stands behind it. All of it is a function of (seed,
    step, rank), and its state is in the checkpoint.

    Logs ``train/online_critic/`` ``loss`` (of a lesson's last step), ``buffer_states``, ``refreshes``, ``seconds`` and
    ``skipped_steps``: those of lessons that were left out because a number was not finite.
    A refresh comes after a batch is drawn and before it is rewarded. Then the two copies are compared on its rollouts,
    from which neither has learned: ``auroc_before`` and ``auroc_after``, see ``verdict_auroc``.

    Args:
        task: finds the steps in a completion, and verifies it.
        lessons: how the critic learns.
        learn_every: rollout batches between lessons.
        refresh_every: rollout batches between refreshes.
        buffer_states: states remembered at most.

    Raises:
        ValueError: a number below 1, or at the start of a fit a reward whose critic this cannot train, or a trust gate
            that needs longer to judge a copy than the copy stays.
    """

    def __init__(
        self, *, task: Task, lessons: CriticLessons, learn_every: int, refresh_every: int, buffer_states: int
    ) -> None:
        sizes = {"learn_every": learn_every, "refresh_every": refresh_every, "buffer_states": buffer_states}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"online.{name} must be at least 1, got {size}")
        self.task = task
        self.lessons = lessons
        self.learn_every = learn_every
        self.refresh_every = refresh_every
        self.buffer = MetStates(capacity=buffer_states)
        self.refreshes = 0
        self._due = False
        """Whether the next rollouts are to be scored by the copy that learns now."""

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        """Find the critic that scores, and copy it."""
        if stage == "fit":
            refuse_stale_trust(pl_module.advantage, self.refresh_every)
            self.reward = critic_within(pl_module.reward)
            self.lessons.begin(deepcopy(self.reward.critic))

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Refresh the copy that scores, if that is due."""
        start = perf_counter()
        if self._due:
            report(trainer, pl_module.rollout_step + 1, self._refresh(pl_module, batch.rollouts))
        self._seconds = perf_counter() - start

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Remember the states of the rollouts; learn, if that is due."""
        start, step = perf_counter(), int(pl_module.rollout_step)
        self._remember(batch.rollouts)
        if step % self.learn_every == 0 and len(self.buffer):
            device, rank, ranks = batch.rollouts.mask.device, trainer.global_rank, trainer.world_size
            try:
                loss = self.lessons.lesson(self.buffer, device=device, rank=rank, ranks=ranks)
            except TooManyLeftOut as reason:
                path = dumped(reason.batch or {}, run=trainer.default_root_dir, step=step)
                raise FloatingPointError(f"{reason}; its batches after step {step} are in {path}") from None
            known = loss is not None  # on every rank, or on none
            report(trainer, step, {"loss": total(loss) / ranks if known else None})
        self._due = self.lessons.taken > 0 and step % self.refresh_every == 0
        if self._due and isinstance(pl_module.reward, CalibratedReward):
            with self._scoring(self.lessons.critic):
                pl_module.reward.foresee(batch.rollouts)
        seconds = self._seconds + perf_counter() - start
        every = {
            "buffer_states": float(len(self.buffer)),
            "refreshes": float(self.refreshes),
            "skipped_steps": float(self.lessons.skipped.count),
            "seconds": seconds,
        }
        pl_module.log_dict({NAME + name: value for name, value in every.items()}, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        """Both copies, the buffer, and what is due."""
        return {
            "buffer": self.buffer.state_dict(),
            "lessons": self.lessons.state_dict(),
            "scoring": self.reward.critic.state_dict(),
            "refreshes": self.refreshes,
            "due": self._due,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state_dict["buffer"])
        self.lessons.load_state_dict(state_dict["lessons"])
        self.reward.critic.load_state_dict(state_dict["scoring"])
        self.refreshes = state_dict["refreshes"]
        self._due = state_dict["due"]

    @contextmanager
    def _scoring(self, critic: Any) -> Iterator[None]:
        """Let another critic score for as long."""
        now, self.reward.critic = self.reward.critic, critic
        try:
            yield
        finally:
            self.reward.critic = now

    def _refresh(self, pl_module: Any, rollouts: RolloutBatch) -> dict[str, float | None]:
        """Score with the copy that learned from now on; how well either foretells the verdicts on these rollouts."""
        before = verdict_auroc(self.reward, self.task, rollouts)
        self.reward.critic.load_state_dict(self.lessons.critic.state_dict())
        self.refreshes += 1
        for part in (pl_module.reward, pl_module.advantage):
            if isinstance(part, CalibratedReward | TrustGate):
                part.begin_anew()
        return {"auroc_before": before, "auroc_after": verdict_auroc(self.reward, self.task, rollouts)}

    def _remember(self, rollouts: RolloutBatch) -> None:
        """The states under which a value was reached, on any rank; the end itself is no such state."""
        own: dict[State, dict[int, None]] = {}
        made_here: list[tuple[State, State]] = []
        for row, steps in enumerate(legal_steps(self.task, rollouts)):
            fields = rollouts.problem_of(row).fields
            made = list(moves_of(fields["numbers"], steps))
            for before, _ in made:
                own.setdefault(before, {})[fields["target"]] = None
            made_here += made
        targets: dict[State, list[int]] = {}
        moves: list[tuple[State, State]] = []
        for theirs, made in gather((own, made_here)):  # every rank remembers the same
            for state, met in theirs.items():
                targets.setdefault(state, []).extend(met)
            moves += made
        for state, known in known_states(moves).items():
            if known.reached:
                self.buffer.add(state, targets[state], known)


def report(trainer: L.Trainer, step: int, values: Mapping[str, float | None]) -> None:
    """Log what does not occur in every step: Lightning's own way repeats it in all steps that follow."""
    known = {NAME + name: value for name, value in values.items() if value is not None}
    for logger in trainer.loggers:
        logger.log_metrics(known, step)
