"""Problems are functions of (seed, split, index), solvable, within their ranges, and in one split only."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from contrastive_reasoning.tasks.countdown.generator import (
    ProblemSpace,
    draw,
    draw_distinct,
    generate_problems,
    split_of,
)
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.problem import problem_key
from contrastive_reasoning.tasks.countdown.search_length import search_lines
from contrastive_reasoning.tasks.countdown.stream import ordered_map, stream_generated, stream_traces
from contrastive_reasoning.tasks.countdown.trace import search_trace

SPLITS = ("train", "validation", "test")


def space(**changes: object) -> ProblemSpace:
    settings = {"counts": [3, 4], "number_range": [1, 20], "target_range": [10, 50], "max_search_lines": None}
    return ProblemSpace(**{**settings, **changes})  # type: ignore[arg-type]


def test_problems_are_solvable_distinct_and_in_range() -> None:
    problems = generate_problems(space(), split="train", count=120, seed=0, style="direct", exclude=())
    assert len({problem.key for problem in problems}) == 120
    assert {len(problem.numbers) for problem in problems} == {3, 4}
    for problem in problems:
        assert reachable(problem.numbers, problem.target)
        assert all(1 <= number <= 20 for number in problem.numbers)
        assert 10 <= problem.target <= 50


def test_search_length_is_bounded() -> None:
    short = space(max_search_lines=13)
    for index in range(20):
        lines = search_lines(*draw(short, seed=1, split="test", index=index, exclude=()))
        assert lines is not None
        assert lines <= 13


def test_a_longer_list_begins_with_the_shorter_one_and_seeds_differ() -> None:
    short, long, other = (
        generate_problems(space(), split="test", count=count, seed=seed, style="direct", exclude=())
        for count, seed in ((10, 0), (30, 0), (30, 1))
    )
    assert [problem.id for problem in long[:10]] == [problem.id for problem in short]
    assert {problem.id for problem in long} != {problem.id for problem in other}


def test_splits_never_overlap_whatever_the_seed() -> None:
    keys = {
        split: {
            problem.key
            for seed in range(2)
            for problem in generate_problems(space(), split=split, count=40, seed=seed, style="direct", exclude=())
        }
        for split in SPLITS
    }
    assert not keys["train"] & keys["validation"]
    assert not keys["train"] & keys["test"]
    assert not keys["validation"] & keys["test"]


def test_the_hash_splits_eight_to_one_to_one_and_ignores_order() -> None:
    rng = random.Random(0)
    problems = [([rng.randint(1, 49) for _ in range(4)], rng.randint(10, 50)) for _ in range(4000)]
    counts = Counter(split_of(problem_key(*problem)) for problem in problems)
    assert counts["train"] == pytest.approx(3200, abs=120)
    assert counts["validation"] == pytest.approx(400, abs=80)
    assert all(split_of(problem_key(n, t)) == split_of(problem_key(n[::-1], t)) for n, t in problems[:50])


def test_excluded_problems_are_not_drawn() -> None:
    first = draw(space(), seed=0, split="train", index=0, exclude=())
    assert draw(space(), seed=0, split="train", index=0, exclude={problem_key(*first)}) != first


def test_an_exhausted_space_says_so() -> None:
    tiny = space(counts=[2], number_range=[10, 12], target_range=[20, 24])
    pairs = draw_distinct(tiny, seed=0, split="train", exclude=())
    with pytest.raises(ValueError, match="holds only about"):
        list(pairs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": []}, "counts must be one or more of 2 to 6"),
        ({"counts": [7]}, "counts must be one or more of 2 to 6"),
        ({"number_range": [5, 1]}, "number_range must be"),
        ({"target_range": [1, 2, 3]}, "target_range must be"),
        ({"max_search_lines": 0}, "max_search_lines must be positive or null"),
    ],
)
def test_bad_spaces_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        space(**changes)


def test_streams_are_the_generated_problems_with_their_traces() -> None:
    done: list[int] = []
    settings = {
        "split": "test",
        "total": 25,
        "seed": 0,
        "style": "direct",
        "exclude": (),
        "workers": 0,
        "chunk_size": 10,
    }
    streamed = list(stream_generated(space(), **settings, progress=done.append))
    problems = generate_problems(space(), split="test", count=25, seed=0, style="direct", exclude=())
    assert [(item.numbers, item.target) for item in streamed] == [(one.numbers, one.target) for one in problems]
    assert all(item.trace == search_trace(item.numbers, item.target, style="direct") for item in streamed)
    assert done[-1] == 25


def test_workers_change_nothing() -> None:
    problems = [draw(space(), seed=0, split="train", index=i, exclude=()) for i in range(12)]
    alone, together = (
        list(stream_traces(problems, style="longproc", workers=workers, chunk_size=5)) for workers in (0, 2)
    )
    assert alone == together


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="workers must be ≥ 0"):
        list(ordered_map(str, [1], workers=-1))
