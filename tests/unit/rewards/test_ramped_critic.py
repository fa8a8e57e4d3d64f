"""RampedCriticReward: the formula against loops, optimizer steps before values, the ramp and the buffer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from contrastive_reasoning.losses import InfoNCE
from contrastive_reasoning.rewards import Credit, RampedCriticReward
from contrastive_reasoning.rewards.base import TrainedReward
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.countdown import CountdownProblem
from contrastive_reasoning.tasks.countdown.indented import line_triples, search_lines
from lightning_modules.optim import AdamW
from tests.unit.critics.test_joint import joint
from tests.unit.critics.test_number_embedding import build
from tests.unit.lightning_modules.grpo_kit import optimizer
from tests.unit.rewards.conftest import Rollouts

PROBLEM = CountdownProblem((21, 16, 17, 26), 46, style="released")
SUCCESS = "Evaluate {target} == {target}, target found! ### Current State: [{target}]"
SEARCH = """\
|- Pick (21, 16) ### Current State: [21, 16, 17, 26]
  |- Try 21 + 16 = 37 ### Current State: [37, 17, 26]
    |- Pick (37, 17) ### Current State: [37, 17, 26]
      |- Try 37 / 17 = 2.2, drop this branch. ### Current State: [2.2, 26]
  |- Try 21 - 16 = 5 ### Current State: [5, 17, 26]"""
OTHER = """\
 |- Pick ### Current State: [21, 16, 17, 26]
  |- Try ### Current State: [336, 17, 26]
   |- Try ### Current State: [1200, 3]"""
FLAT = "|- Pick ### Current State: [3]\n|- Try ### Current State: [4]"


class Half:
    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = rollouts.old_log_probs.new_full((len(rollouts),), 0.5)
        return Credit(outcome=outcome, parts={"half": outcome})


def adam(learning_rate: float = 1e-5) -> AdamW:
    return optimizer(learning_rate, betas=[0.9, 0.999], warmup_steps=0, schedule="constant", total_steps=None)


def ramped(**changes: Any) -> RampedCriticReward:
    settings: dict[str, Any] = {
        "outcome": Half(),
        "critic": build(number_dimension=8, hidden_dimension=16, dimension=16),
        "loss": InfoNCE(temperature=1.0),
        "optimizer": adam(),
        "goal_text": SUCCESS,
        "goals": "later_line",
        "draw": 16,
        "ramp_steps": 100,
        "divisor": 100.0,
        "batch_size": 64,
        "max_skipped_steps": 0,
        "seed": 0,
    }
    return RampedCriticReward(**settings | changes)


def weights(reward: RampedCriticReward) -> torch.Tensor:
    return nn.utils.parameters_to_vector(reward.critic.parameters()).detach().clone()


def mean_of_the_matrix(critic: Any, search: str, target: int) -> float:
    """Returns the mean of f over every triple with every triple's goal, which is the success line."""
    lines = search_lines(search)
    triples = line_triples(lines)
    states, actions = ["\n".join(lines[: t.action]) for t in triples], [lines[t.action] for t in triples]
    goals = [SUCCESS.format(target=target)] * len(triples)
    with torch.no_grad():
        return critic(critic.encode_actions(states, actions), critic.encode_goals(goals)).mean().item()


@pytest.mark.parametrize("batch_size", [1, 64])
def test_value_is_mean_of_critic_over_whole_matrix(batch_size: int, rollouts_of: Rollouts) -> None:
    reward = ramped(optimizer=adam(learning_rate=0.0), batch_size=batch_size)
    credit = reward(rollouts_of([SEARCH, "no search", FLAT, f"text\n{OTHER}\n"], PROBLEM))
    expected = [mean_of_the_matrix(reward.critic, SEARCH, 46), 0.0, 0.0, mean_of_the_matrix(reward.critic, OTHER, 46)]
    assert_close(credit.parts["critic"], torch.tensor(expected))
    assert_close(credit.outcome, 0.5 + torch.tensor(expected) / 100 / 100)
    assert credit.metrics["online_critic/searches"] == 0.75
    assert len({round(value, 6) for value in expected}) == 3


def test_ramp_rises_with_rollout_batches_and_then_stays_constant(rollouts_of: Rollouts) -> None:
    reward = ramped(ramp_steps=4, divisor=0.01)
    seen = [reward(rollouts_of([SEARCH], PROBLEM)).metrics["online_critic/ramp"] for _ in range(6)]
    assert seen == pytest.approx([25.0, 50.0, 75.0, 100.0, 100.0, 100.0])


def test_critic_takes_optimizer_step_before_each_value(rollouts_of: Rollouts) -> None:
    """It takes one step per completion with a search, on triples that include its own."""
    reward, critic = ramped(optimizer=adam(1e-2)), build(number_dimension=8, hidden_dimension=16, dimension=16)
    credit = reward(rollouts_of([SEARCH, "no search", FLAT, OTHER], PROBLEM))
    stepper = torch.optim.Adam(critic.parameters(), lr=1e-2)
    texts, known, values, losses = [SEARCH, None, FLAT, OTHER], [], [], []
    for text in texts:
        if text is None:
            values.append(0.0)
            continue
        lines = search_lines(text)
        known += [("\n".join(lines[:action]), lines[action], lines[goal]) for action, goal in line_triples(lines)]
        assert len(known) <= 16  # all are drawn, and their order does not change the mean
        states, actions, goals = zip(*known, strict=True)
        logits = critic(critic.encode_actions(states, actions), critic.encode_goals(goals))
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(known)))
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        losses.append(loss.item())
        values.append(mean_of_the_matrix(critic, text, 46) if line_triples(lines) else 0.0)
    assert_close(credit.parts["critic"], torch.tensor(values), rtol=1e-4, atol=1e-5)
    assert credit.metrics["online_critic/loss"] == pytest.approx(sum(losses) / 3, rel=1e-4)
    assert reward.steps == 3
    assert credit.metrics["online_critic/buffer_triples"] == len(known)
    assert_close(weights(reward), nn.utils.parameters_to_vector(critic.parameters()).detach(), rtol=1e-3, atol=1e-4)


def test_frozen_part_of_the_critic_stays_in_eval_mode_in_its_steps(rollouts_of: Rollouts) -> None:
    critic = build(number_dimension=8, hidden_dimension=16, dimension=16)
    critic.goal_numbers.eval()
    seen: list[tuple[bool, bool]] = []
    critic.register_forward_pre_hook(lambda *_: seen.append((critic.training, critic.goal_numbers.training)))
    ramped(critic=critic)(rollouts_of([SEARCH], PROBLEM))
    assert seen == [(True, False), (False, False)], "a step, then the value"


def test_draw_limits_triples_per_step_and_buffer_keeps_all(rollouts_of: Rollouts) -> None:
    sizes = []
    reward = ramped(draw=2, loss=lambda scores, *_: sizes.append(tuple(scores.shape)) or scores.sum() * 0)
    for _ in range(3):
        reward(rollouts_of([SEARCH, OTHER], PROBLEM))
    assert set(sizes) == {(2, 2)}
    assert len(reward.buffer) == 3 * (len(line_triples(search_lines(SEARCH))) + 1)


@pytest.mark.parametrize(("goals", "first"), [("later_line", [1200, 3, -1, -1]), ("target", [46, -1, -1, -1])])
def test_training_goals_are_later_lines_or_target(goals: str, first: list[int], rollouts_of: Rollouts) -> None:
    reward, read = ramped(goals=goals), []
    plain = reward.critic.encode_goals
    reward.critic.encode_goals = lambda lines: read.append(plain(lines)) or read[-1]
    reward(rollouts_of([OTHER], PROBLEM))
    assert [goal.tolist() for goal in read] == [[first], [[46, -1, -1, -1]]]


def test_resumed_reward_is_bitwise_equal_to_uninterrupted(rollouts_of: Rollouts) -> None:
    whole = ramped(draw=2, optimizer=adam(1e-2))
    for _ in range(2):
        whole(rollouts_of([SEARCH, OTHER], PROBLEM))
    stopped, resumed = ramped(draw=2, optimizer=adam(1e-2)), ramped(draw=2, optimizer=adam(1e-2))
    stopped(rollouts_of([SEARCH, OTHER], PROBLEM))
    resumed.load_state_dict(stopped.state_dict())
    resumed(rollouts_of([SEARCH, OTHER], PROBLEM))
    assert isinstance(resumed, TrainedReward)
    assert torch.equal(weights(resumed), weights(whole))
    assert (resumed.calls, resumed.steps, len(resumed.buffer)) == (whole.calls, whole.steps, len(whole.buffer))
    assert not torch.equal(weights(stopped), weights(whole))


def test_non_finite_step_is_skipped_and_raises_above_limit(rollouts_of: Rollouts) -> None:
    reward = ramped(max_skipped_steps=1, loss=lambda scores, *_: scores.sum() * float("nan"))
    before = weights(reward)
    credit = reward(rollouts_of([SEARCH], PROBLEM))
    assert credit.metrics["online_critic/skipped_steps"] == 1.0
    assert "online_critic/loss" not in credit.metrics
    assert torch.equal(weights(reward), before)
    with pytest.raises(FloatingPointError, match="critic"):
        reward(rollouts_of([SEARCH], PROBLEM))


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        *[({name: 0}, ValueError, f"{name} .*0") for name in ("draw", "ramp_steps", "divisor")],
        ({"goals": "all"}, ValueError, "goals .*all"),
        ({"goal_text": "found"}, ValueError, "goal_text .*found"),
        ({"critic": joint()}, TypeError, "JointCritic"),
        ({"outcome": ramped()}, ValueError, "RampedCriticReward"),
    ],
)
def test_invalid_settings_raise(changes: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        ramped(**changes)
