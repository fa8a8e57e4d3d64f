from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.search import search
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.trace import search_trace
from contrastive_reasoning.tasks.countdown.triples import (
    array_row,
    array_triple,
    path_text,
    step_texts,
    target_row,
    target_triple,
    text_triple,
    wording_of,
)

PROBLEM = ((8, 24, 28, 22), 24)


@pytest.mark.parametrize("style", ["longproc", "annotated"])
def test_text_triples_are_a_prefix_its_line_and_a_later_line(style: str) -> None:
    trace = search_trace(*PROBLEM, style=style).text
    for seed in range(50):
        triple = text_triple(trace, style=style, discount=1.0, rng=random.Random(seed))
        assert trace.startswith(triple.state + triple.action + "\n")
        assert triple.goal in trace[len(triple.state + triple.action) :]
        assert triple.goal
        assert "Solution" not in triple.goal


def test_text_needs_a_style_that_writes_the_search() -> None:
    with pytest.raises(ValueError, match="style must be one of longproc, annotated, got 'direct'"):
        text_triple("", style="direct", discount=1.0, rng=random.Random(0))


def test_array_triples_are_in_order_of_visiting() -> None:
    tree = search(*PROBLEM)
    for seed in range(50):
        triple = array_triple(tree, discount=1.0, rng=random.Random(seed))
        assert triple.state == PROBLEM[0]
        first = tree.states.index(triple.action)
        assert triple.goal in tree.states[first + 1 :]


def test_target_triples_end_at_the_target_from_any_branch() -> None:
    tree = search(*PROBLEM)
    triples = [target_triple(tree, rng=random.Random(seed)) for seed in range(200)]
    assert {triple.goal for triple in triples} == {24}
    visited = [tree.states.index(triple.state) for triple in triples]
    assert any(tree.exhausted(index) for index in visited), "failed branches are visited, too"


def test_rows_are_padded_arrays() -> None:
    tree = search(*PROBLEM)
    row = array_row(tree, random.Random(0))
    assert row[:6] == [28, 24, 22, 8, -1, -1]
    assert len(row) == 18
    assert target_row(tree, random.Random(0))[6] == 24


def test_path_text_is_the_trace_of_a_search_that_was_right_at_once() -> None:
    numbers, target = (25, 39, 32, 4), 100  # 25 + 39 + 32 + 4: the first line of play
    first = legal_moves(numbers)[0]
    moves = [first, legal_moves(first.state)[0]]
    for style in ("longproc", "annotated"):
        assert search_trace(numbers, target, style=style).text.startswith(
            path_text(numbers, target, moves, style=style) + "\n"
        )


def test_bare_moves_become_the_search_that_found_them_at_once() -> None:
    problem = CountdownProblem((25, 39, 32, 4), 100, style="direct")
    completion = "25+39=64;64+32=96;96+4=100"
    steps = parse_steps(problem, completion)
    for style in ("longproc", "annotated"):
        texts = step_texts(problem, completion, steps, style=style)
        procedure = search_trace(problem.numbers, problem.target, style=style).text.split(wording_of(style).end, 1)[0]
        assert texts[-1] == procedure
        assert [procedure.startswith(text + "\n") for text in texts] == [True, True, False]
    miss = Step(start=0, end=5, state=(8,), legal=True)
    (missed,) = step_texts(CountdownProblem((5, 3), 2, style="direct"), "5+3=8", [miss], style="annotated")
    assert missed.endswith("target: 2\n|- Try 5 + 3 = 8. Evaluate 8 != 2, drop this branch. ### Current State: [8]")
