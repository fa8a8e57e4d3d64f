"""A reward that asks several critics: their mean is the value, and how far they disagree is told."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.critics import EnsembleCritic, save_critic
from contrastive_reasoning.critics.joint import JointCritic
from contrastive_reasoning.rewards import CriticReward, VerifierReward
from contrastive_reasoning.tasks.base import Task

TEXTS = ["21+16=37;37-17=20;26+20=46", "21*16=336", "", "nothing", "21-16=5;17+5=22"]
MEMBER = partial(JointCritic, value_dimension=4, width=16, blocks=1, dimension=8, join_dimension=4, pairs_per_chunk=64)


def reward(task: Task, critic: EnsembleCritic | JointCritic, folder: Path) -> CriticReward:
    save_critic(critic, folder, {})
    return CriticReward(
        outcome=VerifierReward(task=task),
        task=task,
        critic=critic,
        checkpoint=str(folder),
        weight=0.5,
        temperature=0.1,
        batch_size=2,
    )


@pytest.mark.parametrize("by_state", [True, False])
def test_values_and_disagreement_by_member(task: Task, rollouts_of, tmp_path: Path, by_state: bool) -> None:
    ensemble = EnsembleCritic(member=MEMBER, size=3, seed=0)
    for member in ensemble.members:
        member.values_states = by_state
    rollouts = rollouts_of(TEXTS)
    credit = reward(task, ensemble, tmp_path)(rollouts)
    assert credit.steps is not None
    logits = []
    for row, steps in enumerate(task.parse_steps(rollouts.problem_of(row), text) for row, text in enumerate(TEXTS)):
        asked = [step for step in steps if step.legal]
        if asked:
            state_actions, goals = ensemble.encode_steps(rollouts.problem_of(row), TEXTS[row], asked)
            found = ensemble.member_pairs(state_actions, goals) / 0.1
            assert_close([step.value for step in credit.steps[row]], found.mean(dim=0).sigmoid().tolist())
            logits.append(found[:, [len(step.state) > 1 for step in asked]])  # after the last move nothing is open
    spread = 2 * torch.cat(logits, dim=1).sigmoid().std(dim=0, correction=0).mean()
    assert credit.metrics["critic/disagreement"] == pytest.approx(spread.item(), rel=1e-5)
    assert 0 < credit.metrics["critic/disagreement"] < 1
    assert (credit.starts is None) == (not by_state)


def test_a_single_critic_disagrees_with_nobody(task: Task, rollouts_of, tmp_path: Path) -> None:
    assert "critic/disagreement" not in reward(task, MEMBER(seed=0), tmp_path)(rollouts_of(TEXTS)).metrics


def test_no_steps_no_disagreement(task: Task, rollouts_of, tmp_path: Path) -> None:
    asked = reward(task, EnsembleCritic(member=MEMBER, size=2, seed=0), tmp_path)
    assert asked(rollouts_of(["", "nothing"])).metrics["critic/disagreement"] == 0.0
