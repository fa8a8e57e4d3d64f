"""Triples by indentation, on handwritten depths and on searches in every style."""

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
        ((0, 2, 4, 4, 2, 4), [(1, 2), (1, 3)]),  # line 4, as deep as line 1, ends the goals; line 3 is deeper than it
        ((1, 2, 3), [(1, 2)]),
        ((0, 2, 2, 4, 4), []),  # no line is both deeper than the line before and shallower than the line after
        ((2, 1, 0), []),
        ((0, 1), []),
        ((), []),
    ],
)
def test_line_triples_of_handwritten_depths(depths: tuple[int, ...], triples: list[tuple[int, int]]) -> None:
    assert line_triples(lines(*depths)) == triples


def test_line_triples_match_slow_reference() -> None:
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


def test_search_lines_returns_first_block_of_marked_lines() -> None:
    text = "Let me see.\nInitial number set: [1, 2]\n |- Pick\n  |- Try\n\n |- Another\nend"
    assert search_lines(text) == [" |- Pick", "  |- Try"]
    assert search_lines("  |- Only") == ["  |- Only"]
    assert search_lines("no - search | here\n") == []


def test_only_longproc_style_has_line_triples() -> None:
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
def test_numbers_in_reads_annotated_state_of_line(line: str, numbers: list[str]) -> None:
    assert numbers_in(line) == numbers
