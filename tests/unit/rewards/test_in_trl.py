"""RewardInTRL gives the numbers of the project's own credit on the same completions; GRPOTrainer trains with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rewards import CLIPOReward, Credit, OracleReward, RewardInTRL, VerifierReward
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.tasks.base import Problem, Verdict
from tests.tiny_models import tiny_policy
from tests.tiny_tasks import PlainTask, countdown
from tests.unit.rewards.test_clipo import SETTINGS

SIZE = 4
FREE = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=6, stop=())


class Halves(PlainTask):
    """A task on which every completion with an even number of characters is correct."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        even = len(completion) % 2 == 0
        return Verdict(status="ok" if even else "wrong", reason="" if even else "odd")


PROBLEMS = [Problem(id=f"p/{n}", prompt=f"{n}: ", answer="") for n in range(6)]


@pytest.fixture
def policy(tokenizer: PreTrainedTokenizerFast) -> CausalLMPolicy:
    return tiny_policy(tokenizer)


def drawn(policy: Any) -> RolloutBatch:
    engine = Engine(max_batch_tokens=4096)
    return engine.generate(policy, PROBLEMS, group_size=SIZE, sampling=FREE, seed=(0, "test"), pooled=True)


def as_trl_passes(rollouts: RolloutBatch) -> dict[str, Any]:
    """The columns of a batch: token ids of each completion, and the ids of their problems."""
    ids = [row[mask].tolist() for row, mask in zip(rollouts.completion_ids, rollouts.mask, strict=True)]
    return {"completion_ids": ids, "id": [rollouts.problem_of(row).id for row in range(len(ids))]}


def in_trl(reward: Any, policy: Any) -> RewardInTRL:
    return RewardInTRL(reward, policy=policy, problems=PROBLEMS, group_size=SIZE)


def clipo(**changes: Any) -> CLIPOReward:
    return CLIPOReward(outcome=VerifierReward(task=Halves()), **SETTINGS | changes)


def test_clipo_in_trl_equals_credit_and_head_of_own_rollouts(policy: Any) -> None:
    rollouts, own = drawn(policy), clipo()
    function = in_trl(clipo(), policy)
    for _ in range(2):  # the second with a head that has learned
        expected = own(rollouts)
        assert expected.parts["clipo"].any()
        policy.model.train()
        assert_close(torch.tensor(function(**as_trl_passes(rollouts))), expected.outcome, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_oracle_in_trl_equals_own_credit(policy: Any, weight: float) -> None:
    task = countdown()
    problem = task.problems("train")[0]
    a, b, *_ = problem.fields["numbers"]
    texts = [f"{a}+{b}={a + b}\n", "nothing\n", f"{b}+{a}={a + b}\n", f"{a}-{b}={a}\n"]
    reward = OracleReward(outcome=VerifierReward(task=task), task=task, weight=weight)
    function = RewardInTRL(reward, policy=policy, problems=[problem], group_size=SIZE)
    completion_ids = [[*policy.tokenizer(text)["input_ids"], policy.end_token_id] for text in texts]  # pyright: ignore
    found = function(completion_ids=completion_ids, id=[problem.id] * SIZE)
    credit = function.credit([problem.id] * SIZE, completion_ids)
    assert [len(steps) for steps in credit.steps or ()] == [1, 0, 1, 0]
    assert found == [weight * value for value in credit.parts["oracle"].tolist()]


def test_batches_of_warmup_teach_head_and_give_policy_no_signal(policy: Any) -> None:
    rollouts, reward, logged = drawn(policy), clipo(warmup_steps=1), {}
    correct = sum(len(text) % 2 == 0 for text in rollouts.texts)
    function = in_trl(reward, policy)
    policy.model.train()
    assert function(**as_trl_passes(rollouts), log_metric=logged.__setitem__) == [0.0] * len(rollouts)
    assert reward.calls == 1
    assert logged["clipo/loss"] > 0
    assert logged["reward/verifier"] == pytest.approx(correct / len(rollouts))
    assert any(function(**as_trl_passes(rollouts)))


def test_prompts_are_encoded_as_in_own_rollouts(policy: Any) -> None:
    rows = in_trl(clipo(), policy).rows()
    assert [row["id"] for row in rows] == [problem.id for problem in PROBLEMS]
    encoded: Any = policy.tokenizer([row["prompt"] for row in rows])
    assert encoded["input_ids"] == [policy.prompt_ids(problem.prompt) for problem in PROBLEMS]


def test_completion_without_reward_is_none(policy: Any) -> None:
    def failing(rollouts: RolloutBatch) -> Credit:
        return replace(VerifierReward(task=Halves())(rollouts), failures={1: Verdict(status="error", reason="!")})

    found = in_trl(failing, policy)(**as_trl_passes(drawn(policy)))
    assert [row for row, number in enumerate(found) if number is None] == [1]


@pytest.mark.parametrize(
    ("ids", "named"),
    [(["p/0"] * 3, "3 rows"), (["p/0", "p/0", "p/1", "p/1"], "num_generations"), (["q/0"] * 4, "q/0")],
)
def test_rows_that_are_no_groups_of_known_problems_are_refused(policy: Any, ids: Sequence[str], named: str) -> None:
    function = in_trl(VerifierReward(task=Halves()), policy)
    with pytest.raises(ValueError, match=named):
        function(completion_ids=[[5]] * len(ids), id=ids)


def test_evaluation_does_not_teach_a_reward(policy: Any) -> None:
    reward = clipo()
    function = in_trl(reward, policy)
    policy.model.eval()
    with pytest.raises(ValueError, match="eval_strategy"):
        function(**as_trl_passes(drawn(policy)))
    assert reward.g is None


def test_credit_on_steps_that_trl_cannot_take_is_refused(policy: Any) -> None:
    task = countdown()
    reward = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.0)
    with pytest.raises(ValueError, match=r"reward\.weight"):
        RewardInTRL(reward, policy=policy, problems=PROBLEMS, group_size=SIZE)


@pytest.mark.whole
def test_trainer_of_trl_trains_and_resumes_with_clipo(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from docs.examples.clipo_in_trl import main

    trainer = main(str(tmp_path), max_steps=2)
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert losses[0]["grad_norm"] == 0  # the head's warm-up
    assert losses[1]["grad_norm"] > 0
    assert losses[1]["rewards/CLIPOReward/mean"] != losses[1]["reward/verifier"]
    first: Any = trainer.reward_funcs[0]
    resumed = main(str(tmp_path), max_steps=3, resume=True)
    again: Any = resumed.reward_funcs[0]
    assert (first.calls, again.calls) == (2, 3)
    assert [int(one.reward.state_dict()["optimizer"]["state"][0]["step"]) for one in (first, again)] == [2, 3]
    assert resumed.state.log_history[-2]["grad_norm"] > 0  # the warm-up is not repeated
