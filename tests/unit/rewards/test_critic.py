from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from contrastive_reasoning.critics import EnsembleCritic, save_critic
from contrastive_reasoning.critics.joint import JointCritic
from contrastive_reasoning.rewards import CriticReward, VerifierReward
from contrastive_reasoning.rewards.critic import verdict_auroc
from contrastive_reasoning.tasks.base import Problem, Step, Task
from contrastive_reasoning.tasks.countdown import CountdownProblem
from tests.unit.critics.test_joint import joint as joint_critic
from tests.unit.rewards.conftest import values

TEXTS = ["21+16=37;37-17=20;26+20=46", "21*16=336", "", "nothing", "21-16=5;17+5=22"]


class Pointer(nn.Module):
    """f = weight · (target − the newest number): small enough to compute by hand, encoded as a tensor or a dict."""

    def __init__(self, weight: float, as_dict: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.dropout = nn.Dropout(0.5)
        self.as_dict = as_dict

    def forward(self, state_actions: Any, goals: Any) -> Tensor:
        newest, target = self._read(state_actions), self._read(goals)
        return self.dropout(self.weight * (target[None, :] - newest[:, None]))

    def pairs(self, state_actions: Any, goals: Any) -> Tensor:
        return self.dropout(self.weight * (self._read(goals) - self._read(state_actions)))

    def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Any, Any]:
        # the width depends on the number of steps, so encodings of different rows cannot be concatenated
        newest = torch.tensor([[float(step.state[0])] * (len(steps) + 1) for step in steps])
        target = torch.full((len(steps), 1), float(problem.fields["target"]))
        return ({"newest": newest}, {"target": target}) if self.as_dict else (newest, target)

    def _read(self, encoding: Any) -> Tensor:
        return (next(iter(encoding.values())) if isinstance(encoding, dict) else encoding)[:, 0]


def reward(task: Task, critic: Any, checkpoint: Path | None, **changes: Any) -> CriticReward:
    settings: dict[str, Any] = {"weight": 0.5, "temperature": 1.0, "batch_size": 64}
    path = None if checkpoint is None else str(checkpoint)
    return CriticReward(
        outcome=VerifierReward(task=task), task=task, critic=critic, checkpoint=path, **settings | changes
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_critic(Pointer(0.1), tmp_path, {})
    return tmp_path


@pytest.mark.parametrize(
    ("as_dict", "batch_size", "temperature"), [(False, 1, 1.0), (True, 2, 1.0), (True, 64, 1.0), (False, 64, 0.1)]
)
def test_critic_values_match_hand_computation(
    task: Task, rollouts_of, checkpoint: Path, as_dict: bool, batch_size: int, temperature: float
) -> None:
    settings = {"batch_size": batch_size, "temperature": temperature}
    credit = reward(task, Pointer(9.0, as_dict), checkpoint, **settings)(rollouts_of(TEXTS))
    newest = [[37, 20, 46], [336], [], [], [5, 22]]
    expected = [torch.tensor([0.1 * (46 - n) / temperature for n in row]).sigmoid() for row in newest]
    assert_close([*map(torch.tensor, values(credit))], expected)
    means = torch.tensor([row.mean().item() if len(row) else 0.0 for row in expected])
    assert_close(credit.parts["critic"], means)
    assert_close(credit.outcome, torch.tensor([1.0, 0, 0, 0, 0]) + 0.5 * means)


class StatePointer(Pointer):
    """Depends only on the numbers left, and counts the states that it encodes."""

    values_states = True

    def __init__(self, weight: float) -> None:
        super().__init__(weight)
        self.asked = 0

    def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Any, Any]:
        self.asked += len(steps)
        largest = torch.tensor([[float(max(step.state))] for step in steps])
        return largest, torch.full((len(steps), 1), float(problem.fields["target"]))


def test_shared_state_is_scored_once(task: Task, rollouts_of, tmp_path: Path) -> None:
    texts = [*TEXTS, "16+21=37;37-17=20"]
    critic = StatePointer(9.0)
    save_critic(StatePointer(0.1), tmp_path, {})
    credit = reward(task, critic, tmp_path)(rollouts_of(texts))
    largest = [[37, 26, 46], [336], [], [], [26, 26], [37, 26]]
    assert_close(values(credit), [[(0.1 * torch.tensor(46.0 - n)).sigmoid().item() for n in row] for row in largest])
    assert credit.starts == pytest.approx([(0.1 * torch.tensor(46.0 - 26)).sigmoid().item()] * len(texts))
    assert critic.asked == 6 + 1, "six states, and the start"


def test_critic_is_frozen_and_deterministic(task: Task, rollouts_of, checkpoint: Path) -> None:
    critic = Pointer(9.0).train()
    shaped = reward(task, critic, checkpoint)
    assert not critic.training
    assert not any(parameter.requires_grad for parameter in critic.parameters())
    rollouts = rollouts_of(TEXTS)
    assert torch.equal(shaped(rollouts).outcome, shaped(rollouts).outcome)


def test_batch_size_counts_tokens_of_texts(task: Task, rollouts_of, checkpoint: Path) -> None:
    """A batch of states can be thousands of texts, so the batch size limits tokens."""

    class Reader(Pointer):
        def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Any, Any]:
            newest, target = super().encode_steps(problem, completion, steps)
            return {"input_ids": newest[:, :1].repeat(1, 50)}, target

        def pairs(self, state_actions: Any, goals: Any) -> Tensor:
            sizes.append(len(goals))
            return super().pairs(state_actions, goals)

    sizes: list[int] = []
    save_critic(Reader(0.1), checkpoint / "reader", {})
    by_token = reward(task, Reader(9.0), checkpoint / "reader", batch_size=120)(rollouts_of(TEXTS))
    assert sizes == [2, 2, 2], "of 50 tokens two fit"
    assert by_token.outcome.tolist() == reward(task, Pointer(9.0), checkpoint)(rollouts_of(TEXTS)).outcome.tolist()


def test_reward_without_checkpoint_raises_when_called(task: Task, rollouts_of) -> None:
    shaped = reward(task, Pointer(9.0), None)
    with pytest.raises(RuntimeError, match=r"reward\.checkpoint"):
        shaped(rollouts_of(TEXTS))


def reward_with(task: Task, critic: EnsembleCritic | JointCritic, folder: Path, **changes: Any) -> CriticReward:
    save_critic(critic, folder, {})
    return reward(task, critic, folder, **{"temperature": 0.1, "batch_size": 2} | changes)


@pytest.mark.parametrize("by_state", [True, False])
def test_ensemble_values_and_disagreement_match_members(
    task: Task, rollouts_of, tmp_path: Path, by_state: bool
) -> None:
    ensemble = EnsembleCritic(member=joint_critic, size=3, seed=0)
    for member in ensemble.members:
        member.values_states = by_state
    rollouts = rollouts_of(TEXTS)
    credit = reward_with(task, ensemble, tmp_path)(rollouts)
    logits = []
    for row, steps in enumerate(task.parse_steps(rollouts.problem_of(row), text) for row, text in enumerate(TEXTS)):
        legal = [step for step in steps if step.legal]
        if legal:
            state_actions, goals = ensemble.encode_steps(rollouts.problem_of(row), TEXTS[row], legal)
            found = ensemble.member_pairs(state_actions, goals) / 0.1
            assert_close(values(credit)[row], found.mean(dim=0).sigmoid().tolist())
            logits.append(found[:, [len(step.state) > 1 for step in legal]])  # after the last move no move is left
    spread = 2 * torch.cat(logits, dim=1).sigmoid().std(dim=0, correction=0).mean()
    assert credit.metrics["critic/disagreement"] == pytest.approx(spread.item(), rel=1e-5)
    assert 0 < credit.metrics["critic/disagreement"] < 1
    assert (credit.starts is None) == (not by_state)
    without = reward_with(task, ensemble, tmp_path)(rollouts_of(["", "nothing"]))
    assert (values(without), without.metrics["critic/disagreement"]) == ([[], []], 0.0)


PROBLEMS = [CountdownProblem(numbers, 46, style="direct") for numbers in ((21, 16, 17, 26), (20, 26, 1, 2))]
PLAYED = [
    *("21+16=37;37-17=20;26+20=46", "21+26=47;47-16=31", "17+16=33;33+21=54", "26-16=10;21+17=38"),
    *("20+26=46;2-1=1;46*1=46", "20+26=46;2+1=3;46+3=49", "26-20=6;6*2=12", "20+1=21;21+2=23"),
]


@pytest.fixture
def joint(task: Task, tmp_path: Path) -> CriticReward:
    return reward_with(task, joint_critic(), tmp_path, weight=0.0, temperature=0.5, batch_size=64)


def test_verdict_auroc_matches_loops_within_problem_and_depth(
    task: Task, joint: CriticReward, rollouts_of: Any
) -> None:
    rollouts = rollouts_of(PLAYED, *PROBLEMS)
    states = []
    for row, text in enumerate(PLAYED):
        problem = rollouts.problem_of(row)
        steps = [step for step in task.parse_steps(problem, text) if step.legal and len(step.state) > 1]
        valued = joint.step_values(rollouts, [steps if own == row else [] for own in range(len(PLAYED))])[row]
        right = task.verify(problem, text).correct
        states += [((row // 4, len(step.state)), right, value) for step, value in valued]
    pairs = [(a, b) for (one, good, a), (other, bad, b) in product(states, states) if one == other and good and not bad]
    pooled = [(a, b) for (_, good, a), (_, bad, b) in product(states, states) if good and not bad]
    expected, over_all = (sum((a > b) + (a == b) / 2 for a, b in those) / len(those) for those in (pairs, pooled))
    assert verdict_auroc(joint, task, rollouts) == pytest.approx(expected)
    assert expected != pytest.approx(over_all)


def test_verdict_auroc_is_none_if_no_problem_has_both_verdicts(
    task: Task, joint: CriticReward, rollouts_of: Any
) -> None:
    assert verdict_auroc(joint, task, rollouts_of([PLAYED[0]] * 4 + PLAYED[6:] * 2, *PROBLEMS)) is None
