"""Problems are functions of (seed, split, index), solvable, within their ranges, and in one split only."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import pytest

from contrastive_reasoning.tasks.base import Split, split_of
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw, draw_distinct
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.problem import Pair, problem_key
from contrastive_reasoning.tasks.countdown.search import search_lines

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def space(**changes: object) -> ProblemSpace:
    settings = {"counts": [3, 4], "number_range": [1, 20], "target_range": [10, 50], "max_search_lines": None}
    return ProblemSpace(**{**settings, **changes})  # type: ignore[arg-type]


def problems(split: Split, *, count: int, seed: int) -> list[Pair]:
    return list(islice(draw_distinct(space(), seed=seed, split=split, exclude=()), count))


def test_drawn_problems_are_solvable_distinct_and_within_ranges() -> None:
    drawn, other = problems("train", count=120, seed=0), problems("train", count=30, seed=1)
    assert len({problem_key(*pair) for pair in drawn}) == 120
    assert {len(numbers) for numbers, _ in drawn} == {3, 4}
    for numbers, target in drawn:
        assert reachable(numbers, target)
        assert all(1 <= number <= 20 for number in numbers)
        assert 10 <= target <= 50
    assert problems("train", count=10, seed=0) == drawn[:10] != other[:10], "a longer list begins with the shorter one"
    short = space(max_search_lines=13)
    lines = [search_lines(*draw(short, seed=1, split="test", index=index, exclude=())) for index in range(20)]
    assert all(count is not None and count <= 13 for count in lines)
    assert draw(space(), seed=0, split="train", index=0, exclude={problem_key(*drawn[0])}) != drawn[0]


def test_splits_do_not_overlap_for_different_seeds() -> None:
    keys = {
        split: {problem_key(*pair) for seed in range(2) for pair in problems(split, count=40, seed=seed)}
        for split in SPLITS
    }
    assert all(split_of(key) == split for split in SPLITS for key in keys[split])
    rng = random.Random(0)
    drawn = [problem_key([rng.randint(1, 49) for _ in range(4)], rng.randint(10, 50)) for _ in range(4000)]
    counts = Counter(map(split_of, drawn))
    assert counts["train"] == pytest.approx(3200, abs=120)
    assert counts["validation"] == pytest.approx(400, abs=80)


def test_exhausted_space_raises() -> None:
    tiny = space(counts=[2], number_range=[10, 12], target_range=[20, 24])
    pairs = draw_distinct(tiny, seed=0, split="train", exclude=())
    with pytest.raises(ValueError, match=r"\d+ distinct train"):
        list(pairs)


@pytest.mark.parametrize(
    "setting",
    [
        *[{"counts": []}, {"counts": [7]}, {"number_range": [5, 1]}, {"target_range": [1, 2, 3]}],
        {"max_search_lines": 0},
    ],
)
def test_invalid_problem_space_is_rejected(setting: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        space(**setting)
