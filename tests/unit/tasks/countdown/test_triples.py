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
        assert row[:6] == [28, 24, 22, 8, -1, -1]
        action, goal = numbers_in(row[6:12]), numbers_in(row[12:])
        assert goal in visited[visited.index(action) + 1 :]


def test_target_row_ends_at_target_from_any_branch() -> None:
    tree = search(*PROBLEM)
    visited = [sorted(state) for state in tree.states]
    rows = [target_row(tree, random.Random(seed)) for seed in range(200)]
    assert {row[6] for row in rows} == {24}
    places = {visited.index(numbers_in(row[:6])) for row in rows}
    assert min(places) > 0
    assert len(places) > len(PROBLEM[0]), "failed branches are visited, too"


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.3, 1e-6])
def test_draw_future_follows_truncated_geometric_distribution(discount: float) -> None:
    rng, draws = random.Random(0), 6_000
    drawn = Counter(draw_future(1, 5, discount=discount, rng=rng) for _ in range(draws))
    weights = [discount**later for later in range(3)]
    for moment, weight in zip(range(2, 5), weights, strict=True):
        assert drawn[moment] / draws == pytest.approx(weight / sum(weights), abs=0.025)
    assert drawn.keys() <= {2, 3, 4}
