from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.advantages.potential import segments_of
from contrastive_reasoning.rewards import OracleReward, PerfectMoveReward, VerifierReward, WeightedSum
from contrastive_reasoning.rewards.oracle import in_reach, parents
from contrastive_reasoning.rollout import RolloutBatch, token_bytes
from contrastive_reasoning.tasks.base import Problem, Task
from contrastive_reasoning.tasks.countdown import CountdownProblem, legal_moves, parse_steps, search_trace
from tests.unit.rewards.conftest import values

# 46 is reachable after every move; after the first move only; never after 21*16; illegal last move; no move at all
KEPT = "21+16=37;37-17=20;26+20=46"
LOST = "21+16=37;37+17=54;54+26=80"
FIRST = "21*16=336;336+17=353;353+26=379"
ILLEGAL = "21+16=37;37-17=20;99+20=119"
TEXTS = [KEPT, LOST, FIRST, ILLEGAL, "", "é 漢 21+16=37"]


def text_of_tokens(rollouts: RolloutBatch, tokenizer: PreTrainedTokenizerFast, row: int, first: int, last: int) -> str:
    table = token_bytes(tokenizer)
    ids = rollouts.completion_ids[row, first : last + 1].tolist()
    return b"".join(table[i] for i in ids).decode()


def test_oracle_values_match_hand_computation(task: Task, rollouts_of) -> None:
    credit = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.5)(rollouts_of(TEXTS))
    assert credit.parts["oracle"].tolist() == pytest.approx([1.0, 1 / 3, 0.0, 1.0, 0.0, 0.0], abs=1e-6)
    assert credit.outcome.tolist() == pytest.approx([1.5, 1 / 6, 0.0, 0.5, 0.0, 0.0], abs=1e-6)
    assert credit.parts["verifier"].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert values(credit) == [[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1], [], []]


def test_step_credit_covers_tokens_of_step(task: Task, rollouts_of, tokenizer: PreTrainedTokenizerFast) -> None:
    rollouts = rollouts_of(TEXTS)
    credit = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.5)(rollouts)
    assert credit.steps is not None
    for row, text in enumerate(TEXTS):
        legal = [step for step in task.parse_steps(rollouts.problem_of(row), text) if step.legal]
        for step, placed in zip(legal, credit.steps[row], strict=True):
            written = text_of_tokens(rollouts, tokenizer, row, placed.first_token, placed.last_token)
            assert written == text[step.start : step.end]
        assert all(a.last_token < b.first_token for a, b in pairwise(credit.steps[row]))


def test_illegal_steps_are_listed_separately(task: Task, rollouts_of, tokenizer: PreTrainedTokenizerFast) -> None:
    """Cases: a number that is not available, two wrong sums from one state, and a step after the last number (none)."""
    texts = [KEPT, ILLEGAL, "21+16=38;21+16=39;21+16=37", KEPT + ";46+1=47"]
    rollouts = rollouts_of(texts)
    credit = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.5)(rollouts)
    assert credit.illegal is not None
    written = [
        [text_of_tokens(rollouts, tokenizer, row, step.first_token, step.last_token) for step in steps]
        for row, steps in enumerate(credit.illegal)
    ]
    assert written == [[], ["99+20=119"], ["21+16=38", "21+16=39"], []]
    assert [[step.depth for step in row] for row in credit.illegal] == [[], [1], [3, 3], []]
    assert {(step.value, step.legal) for row in credit.illegal for step in row} == {(0.0, False)}


def test_step_depths_follow_backtracking_search_and_revisited_states_are_marked(task: Task, rollouts_of) -> None:
    """The order of its numbers does not matter; the problem's own numbers count as the first state."""
    numbers, target = (12, 12, 5), 48
    problem = CountdownProblem(numbers, target, style="annotated")
    text = search_trace(numbers, target, style="annotated").text
    credit = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.5)(rollouts_of([text], problem))
    states = [sorted(step.state) for step in task.parse_steps(problem, text) if step.legal]
    expected = [state in [sorted(numbers), *states[:index]] for index, state in enumerate(states)]
    assert credit.steps is not None
    assert [step.depth for step in credit.steps[0]] == [len(state) for state in states]
    assert [step.again for step in credit.steps[0]] == expected
    assert any(expected)
    assert not all(expected)


def test_oracle_start_value_is_reachability_of_target(task: Task, rollouts_of) -> None:
    solvable, hopeless = (CountdownProblem((5, 3), target, style="direct") for target in (8, 9))
    rollouts = rollouts_of(["5+3=8", "", "5-3=2", ""], solvable, hopeless)
    credit = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.5)(rollouts)
    assert credit.starts == [1.0, 1.0, 0.0, 0.0]


def test_perfect_move_values_only_steps_from_solvable_states(task: Task, rollouts_of) -> None:
    """Also an illegal step counts only if the state before it was solvable, as in the last but one text."""
    texts = [*TEXTS, "21+16=38", "21*16=336;336+17=1"]
    credit = PerfectMoveReward(outcome=VerifierReward(task=task), task=task, weight=0.5)(rollouts_of(texts))
    assert values(credit) == [[1, 1, 1], [1, 0], [0], [1, 1], *[[]] * 3, [0]]
    assert credit.parts["perfect_move"].tolist() == pytest.approx([1.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert credit.illegal is not None
    assert [len(row) for row in credit.illegal] == [0, 0, 0, 1, 0, 0, 1, 0]


def test_parents_reach_steps_by_legal_moves_in_backtracking_search() -> None:
    numbers, target = (21, 16, 17, 26), 46
    problem = CountdownProblem(numbers, target, style="annotated")
    steps = [step for step in parse_steps(problem, search_trace(numbers, target, style="annotated").text) if step.legal]
    assert len(steps) > 3
    for parent, step in zip(parents(problem, steps), steps, strict=True):
        assert sorted(step.state) in [sorted(move.state) for move in legal_moves(parent)]


def test_problem_of_another_task_has_no_reach_and_raises(task: Task, rollouts_of) -> None:
    (step,) = task.parse_steps(CountdownProblem((4, 3), 7, style="direct"), "4+3=7")
    assert in_reach(Problem(id="7", prompt="?", answer="46", fields={"target": "46"}), step) is None
    own = [CountdownProblem((4, 3), target, style="direct") for target in (7, 8)]
    assert [in_reach(one, step) for one in own] == [True, False]
    assert in_reach(own[0], replace(step, legal=False)) is None
    problem = Problem(id="7", prompt="?", answer="1", fields={"numbers": (4, 3)})
    with pytest.raises(TypeError, match=r"problem 7.*target"):
        OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.5)(rollouts_of(["4+3=7"], problem))


def test_potential_gains_in_weighted_sum_add_up_to_verdict_minus_start(task: Task, rollouts_of) -> None:
    """The start's value and the verdict have the same scale: the sums of the two rows are 1 − 1 and 0 − 1."""
    rollouts = rollouts_of([KEPT, LOST])
    oracle = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.0)
    credit = WeightedSum(rewards={"oracle": oracle}, weights={"oracle": 0.1})(rollouts)
    gains = [[s.gain for s in row] for row in segments_of(credit, rollouts.mask.sum(dim=1).tolist())]
    assert gains == [[0, 0, 0], [0, -1, 0]]
