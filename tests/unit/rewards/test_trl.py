"""TRLReward in a real process: the function gets the arguments that TRL passes, and None means not applicable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from contrastive_reasoning.rewards import TRLReward
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import ChatPrompt, Problem
from contrastive_reasoning.workers.failures import RewardFailed
from tests.unit.rewards import faulty_functions as functions

Rollouts = Callable[..., RolloutBatch]
Build = Callable[..., TRLReward]
LAMP = Problem(id="w/0", prompt="Spell lamp.", answer="pmal", fields={"word": "lamp", "level": 1, "not a name": 0})
RIVER = Problem(id="w/1", prompt=ChatPrompt([("system", "Be short."), ("user", "Spell.")]), answer="revir", fields={})
pytestmark = pytest.mark.filterwarnings("ignore:reward.function failed")


@pytest.fixture
def reward_of() -> Iterator[Build]:
    rewards: list[TRLReward] = []

    def build(function: Callable[..., Any] = functions.lengths, **changes: Any) -> TRLReward:
        settings = {"name": "trl", "messages": False, "columns": {}, "limit_s": 60.0, "memory_mib": 512}
        rewards.append(TRLReward(function=function, **settings | {"max_failures": 0.0} | changes))
        return rewards[-1]

    yield build
    for reward in rewards:
        reward.close()


def test_none_counts_as_zero_and_is_left_out_of_logged_mean(rollouts_of: Rollouts, reward_of: Build) -> None:
    credit = reward_of()(rollouts_of(["ab", "", "abcd", ""]))
    assert credit.outcome.tolist() == [2, 0, 4, 0]
    assert credit.parts["trl"].tolist() == [2, 3, 4, 3]
    assert credit.metrics["reward/trl_not_applicable"] == 0.5
    assert credit.metrics["reward/failed"] == 0
    assert not credit.failures


def test_function_runs_in_one_separate_process(rollouts_of: Rollouts, reward_of: Build) -> None:
    reward = reward_of(functions.process)
    first, again = [reward(rollouts_of(["x", "y", "z", "u"])).outcome for _ in range(2)]
    assert torch.equal(first, again)
    assert len({*first.tolist()}) == 1
    assert os.getpid() not in first.tolist()


def test_arguments_are_problem_fields_that_function_takes_in_order_of_completions(
    rollouts_of: Rollouts, reward_of: Build
) -> None:
    rollouts = rollouts_of(["a", "b", "21+16=37;", "d"], LAMP, RIVER)
    arguments = reward_of().arguments(rollouts)
    lengths = [len(ids) for ids in arguments.pop("completion_ids")]
    assert lengths == rollouts.mask.sum(dim=1).tolist(), "without padding"
    assert arguments == {
        "word": ["lamp", "lamp", None, None],
        "level": [1, 1, None, None],
        "answer": ["pmal", "pmal", "revir", "revir"],
        "id": ["w/0", "w/0", "w/1", "w/1"],
        "prompts": ["Spell lamp."] * 2 + ["Be short.\n\nSpell."] * 2,
        "completions": ["a", "b", "21+16=37;", "d"],
    }
    assert all(type(prompt) is str for prompt in arguments["prompts"]), "the function's process need not know of ours"
    assert set(reward_of(functions.process).arguments(rollouts)) == {"completions"}


def test_messages_option_passes_conversations(rollouts_of: Rollouts, reward_of: Build) -> None:
    messages = reward_of(messages=True).arguments(rollouts_of(["hi", "ho"], LAMP, RIVER))
    assert messages["prompts"] == [
        [{"role": "user", "content": "Spell lamp."}],
        [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Spell."}],
    ]
    assert messages["completions"] == [[{"role": "assistant", "content": text}] for text in ("hi", "ho")]


def test_columns_option_renames_column(rollouts_of: Rollouts, reward_of: Build) -> None:
    rollouts = rollouts_of(["pmal", "lamp"], LAMP)
    reward = reward_of(partial(functions.solution_in, weight=3.0), columns={"solution": "answer"})
    assert reward(rollouts).outcome.tolist() == [3, 0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, r"^reward\.function .*solution.* answer, id, level, word"),
        ({"solution": "anser"}, r"^reward\.columns .*anser.* answer, id, level, word"),
    ],
)
def test_unknown_column_raises_with_available_columns(
    rollouts_of: Rollouts, reward_of: Build, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(RewardFailed, match=message):
        reward_of(functions.solution_in, columns=columns)(rollouts_of(["a", "b"], LAMP))


@pytest.mark.parametrize(
    ("text", "limit_s", "reason"), [("ends its process", 60.0, "exit code 1"), ("hangs", 2.0, "timeout.* 2 s")]
)
def test_failed_call_raises_with_reason(
    text: str, limit_s: float, reason: str, rollouts_of: Rollouts, reward_of: Build
) -> None:
    with pytest.raises(RewardFailed, match=f"2 of 2 .*{reason}"):
        reward_of(limit_s=limit_s)(rollouts_of([text, "abc"]))


def test_allowed_failure_leaves_out_batch(rollouts_of: Rollouts, reward_of: Build) -> None:
    reward = reward_of(max_failures=1.0)
    with pytest.warns(UserWarning, match=r"reward.function failed .*ValueError: no such unit"):
        credit = reward(rollouts_of(["raises", "abc"]))
    assert set(credit.failures) == {0, 1}
    assert (credit.metrics["reward/failed"], credit.metrics["reward/trl_not_applicable"]) == (1, 0)
    assert reward(rollouts_of(["a", "abc"])).outcome.tolist() == [1, 3]
