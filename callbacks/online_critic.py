"""Online critic: the policy is trained with a critic, and the critic on the states that the policy visits.

    rollouts ──► their states, relabelled by hindsight ──► buffer (bounded, oldest out)
       ▲                                                      │  every ``learn_every`` batches optimizer steps,
       │                                                      ▼  half of each from here, half from pretraining
    policy ◄── reward ◄── critic that scores ◄── every ``refresh_every`` batches ── copy that is trained

The labels of the policy's states come from its own completions (``tasks.countdown.states``). A value reached from a
state is a positive. A value that was not reached is a dead end only if completions tried every move from the state.
Otherwise it is an in-batch negative if it is a goal of another trajectory, and does not count if it is the state's own
target: a wrong end does not prove that the target was out of reach. No oracle and no search is used on these states.
The other half is pretraining's stream with all its labels.

There are many in-batch negatives, and some are values that the policy could have reached but did not. The critic's
values therefore shift from what is in reach to what this policy reaches, and decrease. ``auroc_before`` and
``auroc_after`` show whether training helps.

A reward that calibrates the critic's values resets its curves at a refresh. They are then fitted to the batch before
the refresh, as valued by the new critic. A trust gate on the advantage discards its observations of the former critic,
and keeps its trust until it has seen enough of the new one.

The buffer may hold targets of held-out problems that were reached on the way. A critic that was trained online must
therefore not be measured on held-out problems.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, ClassVar

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn

from callbacks.phases import Phase
from contrastive_reasoning.advantages.base import layers
from contrastive_reasoning.advantages.trust_gate import TrustGate, refuse_stale_trust
from contrastive_reasoning.critics import CriticBatch, rows_of
from contrastive_reasoning.critics.base import Pairing
from contrastive_reasoning.critics.replay_buffer import ReplayBuffer, replay_batch
from contrastive_reasoning.distributed import average_gradients, gather, total
from contrastive_reasoning.losses import ContrastiveLoss
from contrastive_reasoning.nonfinite import SkippedSteps, finite_step, keeping_batch
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards import CalibratedReward
from contrastive_reasoning.rewards.critic import critic_within, verdict_auroc
from contrastive_reasoning.rewards.step_values import legal_steps
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import derived_seed
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown.states import State, known_states, moves_of

NAME = "train/online_critic/"


class OnlineTraining(L.Callback, ABC):
    """Trains a critic of the reward beside the policy, on a buffer of the policy's rollouts.

    Such a callback acts, like the one that draws rollouts, and must come after it. Its results are a function of (seed,
    step, rank), and its state is in the checkpoint.

    Logs ``train/online_critic/`` ``loss`` (of the last step taken), ``buffer_states``, ``seconds`` and
    ``skipped_steps`` (steps skipped because a number was not finite).

    Args:
        task: finds the steps in a completion, and verifies it.
        updates: trains the critic.
        buffer: what it is trained on.

    Raises:
        ValueError: at the start of a fit, for a reward whose critic cannot be trained here.
    """

    hook_phases: ClassVar[Mapping[str, Phase]] = {"on_train_batch_start": "critic", "on_train_batch_end": "critic"}
    """Hook → the phase that its time belongs to."""

    def __init__(self, *, task: Task, updates: OnlineUpdates, buffer: Any) -> None:
        self.task = task
        self.updates = updates
        self.buffer = buffer

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self.reward = critic_within(pl_module.reward)
            self.updates.start(self.trained())

    @abstractmethod
    def trained(self) -> nn.Module:
        """Returns the critic to train, at the start of a fit."""

    def learn(self, trainer: L.Trainer, step: int, device: torch.device, *, rank: int, ranks: int) -> None:
        """Trains on the buffer, unless it is empty, and logs the loss."""
        if not len(self.buffer):
            return
        with keeping_batch(dict, run=trainer.default_root_dir, step=step):  # dict: the exception holds the batches
            loss = self.updates.train(self.buffer, device=device, rank=rank, ranks=ranks)
        # the loss is None on every rank or on none
        report(trainer, step, {"loss": None if loss is None else total(loss) / trainer.world_size})

    def log_state(self, pl_module: Any, **values: float) -> None:
        """Logs ``values`` and what every batch logs."""
        values |= {"buffer_states": float(len(self.buffer)), "skipped_steps": float(self.updates.skipped.count)}
        pl_module.log_dict({NAME + name: value for name, value in values.items()}, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        return {"buffer": self.buffer.state_dict(), "updates": self.updates.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state_dict["buffer"])
        self.updates.load_state_dict(state_dict["updates"])


class OnlineCritic(OnlineTraining):
    """Trains a copy of the reward's critic beside the policy; a refresh replaces the scoring critic by the copy.

    Also logs ``train/online_critic/refreshes``.
    A refresh comes after a batch is drawn and before it is rewarded. Then the two critics are compared on its rollouts,
    on which neither was trained: ``auroc_before`` and ``auroc_after``, see ``verdict_auroc``.

    Args:
        task: finds the steps in a completion, and verifies it.
        updates: trains the copy.
        learn_every: rollout batches between two trainings of the copy.
        refresh_every: rollout batches between refreshes.
        buffer_states: the maximum number of states in the buffer.

    Raises:
        ValueError: for a number below 1; at the start of a fit, for a reward whose critic cannot be trained here, or a
            trust gate whose window is too long to judge a copy before the next refresh.
    """

    def __init__(
        self, *, task: Task, updates: CriticUpdates, learn_every: int, refresh_every: int, buffer_states: int
    ) -> None:
        at_least(1, **{"online.learn_every": learn_every, "online.refresh_every": refresh_every})
        at_least(1, **{"online.buffer_states": buffer_states})
        super().__init__(task=task, updates=updates, buffer=ReplayBuffer(capacity=buffer_states))
        self.learn_every = learn_every
        self.refresh_every = refresh_every
        self.refreshes = 0
        self._due = False
        """Whether the copy scores from the next rollouts on."""

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            refuse_stale_trust(pl_module.advantage, self.refresh_every)
        super().setup(trainer, pl_module, stage)

    def trained(self) -> nn.Module:
        return deepcopy(self.reward.critic)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Refreshes the scoring critic, if that is due."""
        start = perf_counter()
        if self._due:
            report(trainer, pl_module.rollout_step + 1, self._refresh(pl_module, batch.rollouts))
        self._seconds = perf_counter() - start

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Adds the states of the rollouts to the buffer; trains the copy, if that is due."""
        start, step = perf_counter(), int(pl_module.rollout_step)
        self._remember(batch.rollouts)
        if step % self.learn_every == 0:
            device = batch.rollouts.mask.device
            self.learn(trainer, step, device, rank=trainer.global_rank, ranks=trainer.world_size)
        self._due = self.updates.taken > 0 and step % self.refresh_every == 0
        if self._due and isinstance(pl_module.reward, CalibratedReward):
            self.updates.to(batch.rollouts.mask.device)
            scoring, self.reward.critic = self.reward.critic, self.updates.critic
            try:
                pl_module.reward.foresee(batch.rollouts)
            finally:
                self.reward.critic = scoring
        seconds = self._seconds + perf_counter() - start
        self.log_state(pl_module, refreshes=float(self.refreshes), seconds=seconds)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "scoring": self.reward.critic.state_dict(),
            "refreshes": self.refreshes,
            "due": self._due,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.reward.critic.load_state_dict(state_dict["scoring"])
        self.refreshes = state_dict["refreshes"]
        self._due = state_dict["due"]

    def _refresh(self, pl_module: Any, rollouts: RolloutBatch) -> dict[str, float | None]:
        """Replaces the scoring critic by the copy; returns the AUROC of both for the verdicts on these rollouts."""
        before = verdict_auroc(self.reward, self.task, rollouts)
        self.reward.critic.load_state_dict(self.updates.critic.state_dict())
        self.refreshes += 1
        for part in (pl_module.reward, *layers(pl_module.advantage)):
            if isinstance(part, CalibratedReward | TrustGate):
                part.begin_anew()
        return {"auroc_before": before, "auroc_after": verdict_auroc(self.reward, self.task, rollouts)}

    def _remember(self, rollouts: RolloutBatch) -> None:
        """Adds the states from which a value was reached, on any rank; the final state itself is not added."""
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
        for theirs, made in gather((own, made_here)):  # the buffers are equal on all ranks
            for state, met in theirs.items():
                targets.setdefault(state, []).extend(met)
            moves += made
        for state, known in known_states(moves).items():
            if known.reached:
                self.buffer.add(state, targets[state], known)


def report(trainer: L.Trainer, step: int, values: Mapping[str, float | None]) -> None:
    """Logs values that do not occur in every step: Lightning would repeat them in all steps that follow."""
    known = {NAME + name: value for name, value in values.items() if value is not None}
    for logger in trainer.loggers:
        logger.log_metrics(known, step)


@dataclass(kw_only=True, eq=False)
class OnlineUpdates(ABC):
    """Optimizer steps on a critic beside the policy. All draws are a function of (seed, purpose, step, rank).

    Raises:
        ValueError: if ``steps`` is below 1 or ``max_skipped_steps`` is negative.
    """

    purpose: ClassVar[str]
    """Part of the seed of each draw."""
    optimizer: Any
    """Builds the optimizer; its schedule counts the steps taken here."""
    steps: int
    """Steps in each call of ``train``."""
    max_skipped_steps: int
    """Steps that may be skipped because a number is not finite."""
    seed: int
    """Seed of all draws."""

    def __post_init__(self) -> None:
        at_least(1, **{"online.updates.steps": self.steps})
        self.taken = 0
        """Steps so far, including skipped ones: the number of a step seeds its draws."""
        self.skipped = SkippedSteps(self.max_skipped_steps, of="the critic that learns beside the policy")

    @abstractmethod
    def draw(self, buffer: Any, *, seed: int, rank: int, ranks: int) -> Mapping[str, Any]:
        """Returns the batches of a step by name; each is a dataclass of tensors."""

    @abstractmethod
    def loss_of(self, drawn: Mapping[str, Any], device: torch.device) -> Tensor:
        """Returns the loss of a step's batches."""

    def start(self, critic: nn.Module) -> None:
        """Sets the critic to train, in place, from its current weights."""
        self.critic: Any = critic.requires_grad_(True).eval()
        self._stepper = self.optimizer(critic.parameters())
        self.taken = self.skipped.count = 0

    def to(self, device: torch.device) -> None:
        """Moves the critic together with the optimizer's moments, which would otherwise stay behind."""
        self.critic.to(device)
        # not the count of steps, a tensor without dimensions, which AdamW may keep on the CPU
        moments = [value for state in self._stepper.state.values() for value in state.values() if value.ndim]
        if any(moment.device != device for moment in moments):  # a reward may have moved the critic alone
            self._stepper.load_state_dict(self._stepper.state_dict())  # moves them to their parameters' device

    def train(self, buffer: Any, *, device: torch.device, rank: int, ranks: int) -> float | None:
        """Takes several optimizer steps; returns the loss of the last step not skipped.

        Raises:
            TooManySkipped: if too many steps were skipped; it holds the batches of the step.
        """
        self.to(device)
        self.critic.train()
        losses = [self._step(buffer, device, rank, ranks) for _ in range(self.steps)]
        self.critic.eval()
        return next((loss for loss in reversed(losses) if loss is not None), None)

    def state_dict(self) -> dict[str, Any]:
        return {
            "critic": self.critic.state_dict(),
            "optimizer": self._stepper.state_dict(),
            "taken": self.taken,
            "skipped": self.skipped.count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.critic.load_state_dict(state["critic"])
        self._stepper.load_state_dict(state["optimizer"])
        self.taken = state["taken"]
        self.skipped.count = state["skipped"]

    def _step(self, buffer: Any, device: torch.device, rank: int, ranks: int) -> float | None:
        """Takes one step; returns its loss, or None if it was skipped."""
        seed = derived_seed((self.seed, self.purpose, self.taken, rank))
        drawn = self.draw(buffer, seed=seed, rank=rank, ranks=ranks)
        with seeded(seed), torch.enable_grad():
            loss = self.loss_of(drawn, device)
            self._stepper.zero_grad()
            loss.backward()
        average_gradients(self.critic.parameters())
        self.optimizer.set_learning_rate(self._stepper, self.taken)
        reason = finite_step(self._stepper, loss=loss)
        self.taken += 1
        if reason is None:
            return loss.item()
        self.skipped.add(reason, {name: asdict(batch) for name, batch in drawn.items()})
        return None


@dataclass(kw_only=True, eq=False)
class CriticUpdates(OnlineUpdates):
    """Steps on the mean loss of two batches of equal size: the policy's states, and pretraining's stream.

    Replay keeps the critic from forgetting states that the policy no longer visits, and the labels of exhaustive search
    there.
    """

    purpose = "critic lessons"  # not to be renamed: it seeds the draws
    stream: Any
    """Pretraining's data; ``stream.batch(number)`` has no end."""
    first_replayed: int
    """Number of the first batch of the stream: one that pretraining has not seen."""
    pairing: Pairing
    """Forms goals and pairs of the policy's states."""
    goal_range: Sequence[int]
    """Lowest and highest value that may be a goal by hindsight."""
    loss: ContrastiveLoss
    """Pretraining's loss, over all pairs that count."""

    def draw(self, buffer: ReplayBuffer, *, seed: int, rank: int, ranks: int) -> dict[str, CriticBatch]:
        replayed = self.stream.batch(self.first_replayed + self.taken * ranks + rank)
        rng, goal_range = np.random.default_rng(seed), (self.goal_range[0], self.goal_range[1])
        drawn = buffer.draw(rows_of(replayed.state_actions), rng)
        fresh = replay_batch(drawn, pairing=self.pairing, goal_range=goal_range, rng=rng)
        return {"replayed": replayed, "met": fresh}

    def loss_of(self, drawn: Mapping[str, CriticBatch], device: torch.device) -> Tensor:
        return (self._loss(drawn["replayed"], device) + self._loss(drawn["met"], device)) / 2

    def _loss(self, batch: CriticBatch, device: torch.device) -> Tensor:
        scores = self.critic(batch.state_actions.to(device), batch.goals.to(device))
        return self.loss(scores, batch.positive.to(device), batch.candidate.to(device))
