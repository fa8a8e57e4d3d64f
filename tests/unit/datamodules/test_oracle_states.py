from __future__ import annotations

from collections import Counter

import torch

from contrastive_reasoning.tasks.countdown import legal_moves, problem_key, split_of
from contrastive_reasoning.tasks.countdown.oracle import reachable_targets
from datamodules.oracle_states import PROBLEMS, SIBLINGS, array_form, oracle_batches, oracle_states, target_form


def test_oracle_problems_are_solvable_and_in_the_test_split() -> None:
    problems = {(state.numbers, state.target) for state in oracle_states()}
    assert len(problems) == PROBLEMS
    for numbers, target in sorted(problems)[::20]:
        assert split_of(problem_key(numbers, target)) == "test"
        assert target in reachable_targets(numbers)
        assert all(1 <= number <= 49 for number in numbers)
        assert 10 <= target <= 50


def test_oracle_states_are_labelled_siblings_after_one_or_two_legal_moves() -> None:
    states = oracle_states()
    assert set(Counter((state.problem, len(state.moves)) for state in states).values()) == {SIBLINGS}
    for state in states[:80]:
        before = state.numbers
        for move in state.moves:
            assert move in legal_moves(before)
            before = move.state
        assert state.label == (state.target in reachable_targets(before))


def test_label_base_rates_lie_in_the_measured_ranges() -> None:
    rates = {d: [state.label for state in oracle_states() if len(state.moves) == d] for d in (1, 2)}
    assert 0.15 < sum(rates[1]) / len(rates[1]) < 0.23
    assert 0.03 < sum(rates[2]) / len(rates[2]) < 0.07


def test_oracle_batches_contain_all_states_in_target_and_array_form() -> None:
    batches = oracle_batches(target_form, batch_size=999)
    assert sum(len(batch.label) for batch in batches) == len(oracle_states())
    assert batches[0].state_actions.shape == (999, 6)
    assert torch.cat([batch.depth for batch in batches]).unique().tolist() == [1, 2]
    arrays = oracle_batches(array_form, batch_size=8, problems=3)
    assert [len(batch.label) for batch in arrays] == [8, 8, 8]
    assert arrays[0].state_actions.shape == (8, 2, 6)
    assert arrays[0].goals[0].tolist() == [oracle_states()[0].target, -1, -1, -1, -1, -1]
