from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps, reachable_targets, search_trace
from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.search import search
from contrastive_reasoning.tasks.countdown.states import Known, State, known_states, moves_of


def steps(*states: tuple[int, ...]) -> list[Step]:
    return [Step(start=0, end=1, state=state, legal=True) for state in states]


def known_of(numbers: tuple[int, ...], *completions: Iterable[Step]) -> dict[State, Known]:
    return known_states(move for completion in completions for move in moves_of(numbers, completion))


def test_known_states_of_module_docstring_example() -> None:
    plays = [steps((6, 4), (value,)) for value in (24, 10, 2)] + [steps((5, 4), (20,))]
    assert known_of((2, 3, 4), *plays) == {
        (6, 4): Known(frozenset({24, 10, 2}), exhausted=True),
        (5, 4): Known(frozenset({20}), exhausted=False),
        (4, 3, 2): Known(frozenset({24, 20, 10, 2}), exhausted=False),
    }


def test_unfinished_completion_and_illegal_steps_reach_no_value() -> None:
    assert known_of((2, 3, 4), steps((6, 4))) == {(4, 3, 2): Known(frozenset(), exhausted=False)}
    # a value that another completion reaches from its last state counts for its first state too
    assert known_of((2, 3, 4), steps((6, 4)), steps((4, 6), (10,)))[(4, 3, 2)].reached == {10}
    wrong = Step(start=0, end=1, state=(2, 3, 4), legal=False)
    assert list(moves_of((2, 3, 4), [wrong, *steps((6, 4)), wrong])) == [((4, 3, 2), (6, 4))]


def all_ends(state: State) -> set[int]:
    """The final values of all lines of play, found by trying each of them."""
    if len(state) == 1:
        return {state[0]}
    return {value for move in legal_moves(state) for value in all_ends(tuple(move.state))}


@pytest.mark.parametrize("plays", [3, 60, 600])
def test_known_states_agree_with_exhaustive_play(plays: int) -> None:
    rng = random.Random(0)
    start, completions = (9, 4, 3), []
    for _ in range(plays):
        state, states = start, []
        while len(state) > 1:
            state = rng.choice(legal_moves(state)).state
            states.append(state)
        completions.append(steps(*states))
    known = known_of(start, *completions)
    for state, shown in known.items():
        assert shown.reached <= all_ends(state)
        if shown.exhausted:
            assert shown.reached == all_ends(state)
    assert known[(9, 4, 3)].exhausted == (plays == 600), "forty lines of play are all met in six hundred draws"


@pytest.mark.parametrize("style", ["longproc", "annotated"])
@pytest.mark.parametrize(("numbers", "target"), [((3, 8, 5), 7), ((40, 19, 23, 7), 29)])
def test_known_states_of_written_search_match_visited_states(numbers: tuple[int, ...], target: int, style: str) -> None:
    problem = CountdownProblem(numbers, target, style=style)
    text = search_trace(numbers, target, style=style).text
    known = known_of(numbers, parse_steps(problem, text))
    visited = {tuple(sorted(state, reverse=True)) for state in search(numbers, target).states if len(state) > 1}
    assert known.keys() == visited
    dead = [state for state, shown in known.items() if shown.exhausted]
    assert dead
    assert all(known[state].reached == reachable_targets(state) for state in dead)
    assert all(shown.reached <= reachable_targets(state) for state, shown in known.items())
