from __future__ import annotations

import random
from collections import Counter

import pytest

from contrastive_reasoning.tasks.countdown.search import search
from contrastive_reasoning.tasks.countdown.states import PADDING
from contrastive_reasoning.tasks.countdown.trace import search_trace
from contrastive_reasoning.tasks.countdown.triples import array_row, draw_future, target_row, text_triple

PROBLEM = ((8, 24, 28, 22), 24)


@pytest.mark.parametrize("style", ["longproc", "annotated"])
def test_text_triple_is_prefix_next_line_and_later_line(style: str) -> None:
    trace = search_trace(*PROBLEM, style=style).text
    for seed in range(50):
        triple = text_triple(trace, style=style, discount=1.0, rng=random.Random(seed))
        assert trace.startswith(triple.state + triple.action + "\n")
        assert triple.goal in trace[len(triple.state + triple.action) :]
        assert triple.goal
        assert "Solution" not in triple.goal


def numbers_in(row: list[int]) -> list[int]:
    return sorted(number for number in row if number != PADDING)


def test_array_row_contains_start_and_two_states_in_visit_order() -> None:
    tree = search(*PROBLEM)
    visited = [sorted(state) for state in tree.states]
    for seed in range(50):
        row = array_row(tree, random.Random(seed))
        assert row is not None
        assert row[:6] == [28, 24, 22, 8, -1, -1]
        action, goal = numbers_in(row[6:12]), numbers_in(row[12:])
        assert goal in visited[visited.index(action) + 1 :]


def test_target_row_is_any_visited_state_of_the_sizes_with_the_target() -> None:
    tree = search(*PROBLEM)
    visited = {tuple(sorted(state)) for state in tree.states[1:-1]}
    for sizes in ([3, 2], [2], [3, 2, 1]):
        rows = [target_row(tree, random.Random(seed), numbers_left=sizes) for seed in range(2_000)]
        drawn = [row for row in rows if row is not None]
        assert len(drawn) == len(rows)
        assert {row[6] for row in drawn} == {24}
        wanted = {state for state in visited if len(state) in sizes}
        assert {tuple(numbers_in(row[:6])) for row in drawn} == wanted, "failed branches are visited, too"


def test_searches_without_a_triple_give_none() -> None:
    tree = search((2, 3), 5)  # the first move reaches the target
    assert target_row(tree, random.Random(0), numbers_left=[1]) is None
    assert array_row(tree, random.Random(0)) is None
    assert target_row(search(*PROBLEM), random.Random(0), numbers_left=[4]) is None


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.3, 1e-6])
def test_draw_future_follows_truncated_geometric_distribution(discount: float) -> None:
    rng, draws = random.Random(0), 6_000
    drawn = Counter(draw_future(1, 5, discount=discount, rng=rng) for _ in range(draws))
    weights = [discount**later for later in range(3)]
    for moment, weight in zip(range(2, 5), weights, strict=True):
        assert drawn[moment] / draws == pytest.approx(weight / sum(weights), abs=0.025)
    assert drawn.keys() <= {2, 3, 4}
