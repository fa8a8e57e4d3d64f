"""The reward of the critic paper's later code: a critic that learns online from the searches that it values.

        r = outcome + w(n) · mean over i, j of f(sᵢ, aᵢ, g),     w(n) = min(n / (N c), 1 / c)

(sᵢ, aᵢ) come from the triples of the completion's own search; g is the line that announces success for the problem's
target. All goals are that one line, so the mean over the matrix is a mean over i. n counts the rollout batches so far,
including this one; the weight is full after N. Before a completion is valued, its triples are added to the buffer and
the critic takes one step:

    completion 1 ──► triples ──► buffer ──► 16 drawn ──► step ──► f of its own triples
    completion 2 ──► triples ──► buffer ──► 16 drawn ──► step ──► f of its own triples …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from contrastive_reasoning.critics.base import TraceCritic
from contrastive_reasoning.critics.triple_buffer import TripleBuffer
from contrastive_reasoning.distributed import gather, share, unshare
from contrastive_reasoning.losses import ContrastiveLoss
from contrastive_reasoning.nonfinite import SkippedSteps, finite_step
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.ranges import above, at_least, one_of
from contrastive_reasoning.rewards.base import Credit, Reward, move_with_moments, refuse_learning
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import derived_seed
from contrastive_reasoning.tasks.countdown.indented import line_triples, search_lines

Goals = Literal["later_line", "target"]
Values = list[float]


@dataclass(kw_only=True, eq=False)
class RampedCriticReward:
    """``outcome`` plus the ramped mean value of a critic that learns with every completion.

    A plain object that owns its critic and the critic's optimizer: no module registers them. Each of several ranks
    gathers the completions of all ranks and takes the steps that one process would take, in the same order: critics and
    buffers stay equal. If the loss of a step or its gradient is not finite, the step is skipped and counted.

    Logs ``online_critic/`` ``ramp`` (the weight), ``buffer_triples``, ``loss`` (mean of the steps taken), ``searches``
    (share of completions with a search), ``triples`` (mean per completion) and ``skipped_steps``.

    Raises:
        TypeError: the critic does not read lines of a search.
        ValueError: a number out of range, unknown goals, a ``goal_text`` without ``{target}``, or an outcome that
            learns.
    """

    outcome: Reward
    """The reward that the critic's value is added to."""
    critic: Any
    """A ``TraceCritic``; its training continues from its current weights."""
    loss: ContrastiveLoss
    """Over the drawn triples, each with its own goal as the positive."""
    optimizer: Any
    """Builds the critic's optimizer from parameters; its schedule counts the critic's steps."""
    goal_text: str
    """The line that announces success; ``{target}`` is replaced by the answer."""
    goals: Goals
    """The goals in training: the triple's ``later_line``, or the success line of its ``target``."""
    draw: int
    """The maximum number of triples per step."""
    ramp_steps: int
    """N, the rollout batches until the weight is full."""
    divisor: float
    """c."""
    batch_size: int
    """The number of actions that are valued at once."""
    max_skipped_steps: int
    """How many of the critic's steps may be skipped."""
    seed: int

    reads_search_lines = True
    """Its ``critic`` must be a ``TraceCritic``, and lines of the completions must be actions."""
    warmup_steps = 0
    """The policy learns from the first batch on."""

    def __post_init__(self) -> None:
        if not (isinstance(self.critic, nn.Module) and isinstance(self.critic, TraceCritic)):
            raise TypeError(f"the critic must read lines of a search, {type(self.critic).__name__} does not")
        at_least(1, draw=self.draw, ramp_steps=self.ramp_steps, batch_size=self.batch_size)
        above(0, divisor=self.divisor)
        one_of(get_args(Goals), goals=self.goals)
        if "{target}" not in self.goal_text:
            raise ValueError(f"goal_text must contain {{target}}, got {self.goal_text!r}")
        refuse_learning("RampedCriticReward", self.outcome)
        self._trained = [module for module in self.critic.modules() if module.training]
        """Those with dropout in the critic's steps; a frozen backbone stays in eval mode."""
        self.critic.eval()  # after _trained, which reads the modes
        self.buffer = TripleBuffer()
        self.calls = 0
        """n, the number of rollout batches rewarded so far."""
        self.steps = 0
        """The critic's steps so far, including skipped ones; the number of a step seeds its draws."""
        self.skipped = SkippedSteps(self.max_skipped_steps, of="the critic that learns from the policy's searches")
        self._stepper = self.optimizer(self.critic.parameters())

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit, size = self.outcome(rollouts), rollouts.group_size
        self.calls += 1
        move_with_moments(self.critic, self._stepper, rollouts.mask.device)
        own = [(text, rollouts.problem_of(row).answer) for row, text in enumerate(rollouts.texts)]
        groups = unshare(gather([own[start : start + size] for start in range(0, len(own), size)]))
        losses: Values = []
        found: list[tuple[bool, int]] = []
        values = [[self._learn_and_value(*one, losses, found) for one in group] for group in groups]
        part = credit.outcome.new_tensor([*chain.from_iterable(share(values))])
        metrics = {
            "ramp": self.ramp,
            "buffer_triples": float(len(self.buffer)),
            "searches": sum(search for search, _ in found) / len(found),
            "triples": sum(triples for _, triples in found) / len(found),
            "skipped_steps": float(self.skipped.count),
        }
        if losses:
            metrics["loss"] = sum(losses) / len(losses)
        named = {f"online_critic/{name}": value for name, value in metrics.items()}
        return credit.plus("critic", part, weight=self.ramp, metrics=named)

    @property
    def ramp(self) -> float:
        """w(n)."""
        return min(self.calls / self.ramp_steps, 1.0) / self.divisor

    def value(self, lines: Sequence[str], actions: Iterable[int], answer: str) -> float:
        """Returns the mean of f over ``actions`` of a search (repeats count) for the problem's success line."""
        counts = Counter(actions)  # an action of several triples is scored once
        places = [*counts]
        goal = self.goal_text.replace("{target}", answer)
        scores: list[Tensor] = []
        with torch.no_grad():
            for start in range(0, len(places), self.batch_size):
                some = places[start : start + self.batch_size]
                states = ["\n".join(lines[:place]) for place in some]
                scores.append(self._scores(states, [lines[place] for place in some], [goal])[:, 0])
        weights = torch.tensor([counts[place] for place in places], dtype=torch.float)
        return ((torch.cat(scores).float().cpu() * weights).sum() / weights.sum()).item()

    def state_dict(self) -> dict[str, Any]:
        return {
            "critic": self.critic.state_dict(),
            "optimizer": self._stepper.state_dict(),
            "buffer": self.buffer.state_dict(),
            "calls": self.calls,
            "steps": self.steps,
            "skipped": self.skipped.count,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.critic.load_state_dict(state["critic"])
        self._stepper.load_state_dict(state["optimizer"])
        self.buffer.load_state_dict(state["buffer"])
        self.calls = state["calls"]
        self.steps = state["steps"]
        self.skipped.count = state["skipped"]

    def _learn_and_value(self, text: str, answer: str, losses: Values, found: list[tuple[bool, int]]) -> float:
        """Adds a completion's triples to the buffer, takes one step and returns its value, 0 without triples."""
        lines = search_lines(text)
        triples = line_triples(lines)
        found.append((bool(lines), len(triples)))
        if not lines:
            return 0.0
        self.buffer.add(lines, answer, triples)
        if len(self.buffer) and (loss := self._step()) is not None:
            losses.append(loss)
        return self.value(lines, [action for action, _ in triples], answer) if triples else 0.0

    def _step(self) -> float | None:
        """Takes one optimizer step and returns its loss, or None if it was skipped."""
        seed = derived_seed((self.seed, "triples of the online critic", self.steps))
        drawn = self.buffer.draw(self.draw, np.random.default_rng(seed))
        if self.goals == "target":
            goals = [self.goal_text.replace("{target}", triple.answer) for triple in drawn]
        else:
            goals = [triple.goal for triple in drawn]
        for module in self._trained:
            module.training = True  # not train(), which would also set the submodules that were in eval mode
        with seeded(seed), torch.enable_grad():
            scores = self._scores([triple.state for triple in drawn], [triple.action for triple in drawn], goals)
            own = torch.eye(len(drawn), dtype=torch.bool, device=scores.device)
            loss = self.loss(scores, own, torch.ones_like(own))
            self._stepper.zero_grad()
            loss.backward()
        self.critic.eval()
        self.optimizer.set_learning_rate(self._stepper, self.steps)
        reason = finite_step(self._stepper, loss=loss)
        self.steps += 1
        if reason is None:
            return loss.item()
        self.skipped.add(reason)
        return None

    def _scores(self, states: Sequence[str], actions: Sequence[str], goals: Sequence[str]) -> Tensor:
        """Returns f of every action with every goal."""
        device = next(self.critic.parameters()).device
        encoded = self.critic.encode_actions(states, actions), self.critic.encode_goals(goals)
        return self.critic(*tree_map(lambda part: part.to(device), encoded))
