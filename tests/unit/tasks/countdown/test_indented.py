"""Triples by indentation, on searches by hand and in every style."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.indented import line_triples, numbers_in, search_lines
from contrastive_reasoning.tasks.countdown.trace import search_trace


def lines(*depths: int) -> list[str]:
    return [f"{' ' * depth}|- line {place}" for place, depth in enumerate(depths)]


@pytest.mark.parametrize(
    ("depths", "triples"),
    [
        ((0, 1, 2, 3, 1), [(1, 2), (1, 3), (2, 3), (2, 4)]),
        ((0, 2, 4, 4, 2, 4), [(1, 2), (1, 3)]),  # ends at 4, which is as deep; 4 itself comes after a deeper one
        ((1, 2, 3), [(1, 2)]),
        ((0, 2, 2, 4, 4), []),  # deeper than the one before it, as deep as the one after it
        ((2, 1, 0), []),
        ((0, 1), []),
        ((), []),
    ],
)
def test_triples_by_hand(depths: tuple[int, ...], triples: list[tuple[int, int]]) -> None:
    assert line_triples(lines(*depths)) == triples


def test_triples_are_those_of_the_words_taken_literally() -> None:
    rng = random.Random(0)
    for _ in range(300):
        depths = [rng.randrange(5) for _ in range(rng.randrange(14))]
        expected = []
        for action in range(1, len(depths) - 1):
            if not depths[action - 1] < depths[action] < depths[action + 1]:
                continue
            for goal in range(action + 1, len(depths)):
                if depths[goal] == depths[action]:
                    break
                expected.append((action, goal))
        assert line_triples(lines(*depths)) == expected


def test_a_search_is_the_first_run_of_marked_lines() -> None:
    text = "Let me see.\nInitial number set: [1, 2]\n |- Pick\n  |- Try\n\n |- Another\nend"
    assert search_lines(text) == [" |- Pick", "  |- Try"]
    assert search_lines("  |- Only") == ["  |- Only"]
    assert search_lines("no - search | here\n") == []


def test_longprocs_indentation_has_triples_and_the_annotated_ones_have_none() -> None:
    found = {
        style: len(line_triples(search_lines(search_trace((21, 16, 17, 26), 46, style=style).text)))
        for style in ("longproc", "annotated", "released")
    }
    # depths 1 2 3 4 5 5 5 5 4 5: the second, third and fourth are actions, with 8, 7 and 4 goals
    assert found == {"longproc": 19, "annotated": 0, "released": 0}


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("|- Try 54 / 26 = 2.1. ### Current State: [2.1, 17]", ["2.1", "17"]),
        ("Current number set: [3, 4] ### Current State: [7]", ["7"]),
        ("Current number set: [3, 4]", []),
        ("### Current State: []", []),
        ("### Current State: [1, x]", []),
    ],
)
def test_numbers_of_a_line_are_those_of_its_state(line: str, numbers: list[str]) -> None:
    assert numbers_in(line) == numbers
