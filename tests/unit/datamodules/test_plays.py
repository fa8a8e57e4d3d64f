"""Plays and searches as examples: split, correctness, and reproducibility from seed and number."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown import search_trace
from datamodules.batch_stream import BatchData, Example
from datamodules.plays import PlayCorpus, Plays, ShuffledSearches, draw_play, draw_shuffled_search
from tests.unit.datamodules.kit import countdown

TASK = countdown(counts=[3, 4])
SEARCHES = countdown(style="longproc", counts=[3])


COMMON: dict[str, Any] = {"batch_size": 4, "validation_batches": 1, "workers": 0, "seed": 0}


def plays(**changes: int) -> Plays:
    return Plays(task=TASK, **{"unaimed_steps": 1, **COMMON, **changes})


def searches(style: str = "longproc", **changes: int) -> ShuffledSearches:
    return ShuffledSearches(task=replace(SEARCHES, style=style), **{"max_lines": 40, **COMMON, **changes})


def numbers_and_target(prompt: str) -> tuple[tuple[int, ...], int]:
    """The numbers and the target of a direct prompt."""
    numbers, target = prompt.strip().split(" = ")
    return tuple(map(int, numbers.split())), int(target)


def numbers_and_target_of_search(search: str) -> tuple[tuple[int, ...], int]:
    """The numbers and the target at the beginning of a written search."""
    found = re.search(r"\[([0-9, ]+)\].*?[Tt]arget\D*(\d+)", search, re.DOTALL)
    assert found is not None
    return tuple(map(int, found[1].split(", "))), int(found[2])


@pytest.mark.parametrize(
    ("aimed", "play", "following"),
    [
        (True, ("14 2 9 17 = 11\n", "17*2=34;14+9=23;34-23=11"), ("20 9 18 = 18\n", "18/9=2;20-2=18")),
        (False, ("14 2 9 17 = 40\n", "17*2=34;14+9=23;34-23=11"), ("18 20 5 10 = 31\n", "18+5=23;23-20=3;10*3=30")),
    ],
)
def test_direct_plays_match_recorded_draws(aimed: bool, play: Example, following: Example) -> None:
    """The embedded policies had their warm start on these plays."""
    rng = random.Random(0)
    assert [draw_play(TASK, "train", rng, aimed=aimed) for _ in range(2)] == [play, following]


@pytest.mark.parametrize("aimed", [True, False])
@pytest.mark.parametrize("style", ["longproc", "annotated"])
def test_draw_play_in_a_search_style_writes_a_successful_search(style: str, aimed: bool) -> None:
    task = replace(TASK, style=style, max_search_lines=40)
    rng = random.Random(5)
    for _ in range(20):
        prompt, completion = draw_play(task, "train", rng, aimed=aimed)
        numbers, target = numbers_and_target_of_search(completion)
        problem = task.problem(numbers, target)
        assert problem.prompt == prompt
        assert completion == search_trace(numbers, target, style=style).text
        assert task.verify(problem, completion).correct, completion
        assert task.split_of(problem) == "train"
        assert task.space.admits(numbers, target)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_aimed_plays_solve_a_problem_of_their_split(split: Split) -> None:
    rng = random.Random(3)
    for _ in range(300):
        prompt, completion = draw_play(TASK, split, rng, aimed=True)
        problem = TASK.problem(*numbers_and_target(prompt))
        assert problem.prompt == prompt
        assert TASK.verify(problem, completion).correct, (prompt, completion)
        assert TASK.split_of(problem) == split
        assert len(problem.numbers) in (3, 4)
        assert 10 <= problem.target <= 50


def test_unaimed_plays_are_legal_and_rarely_correct() -> None:
    rng = random.Random(4)
    hits = 0
    for _ in range(200):
        prompt, completion = draw_play(TASK, "train", rng, aimed=False)
        problem = TASK.problem(*numbers_and_target(prompt))
        steps = TASK.parse_steps(problem, completion)
        assert len(steps) == len(problem.numbers) - 1
        assert all(step.legal for step in steps)
        assert TASK.split_of(problem) == "train"
        hits += TASK.verify(problem, completion).correct
    assert hits < 20


def test_first_training_plays_are_unaimed_but_validation_plays_are_aimed() -> None:
    data = plays(unaimed_steps=2, batch_size=40)

    def hits(number: int, split: Split) -> int:
        pairs = [(TASK.problem(*numbers_and_target(one)), play) for one, play in data.batch(number, split=split)]
        return sum(TASK.verify(*pair).correct for pair in pairs)

    assert hits(1, "train") < 10
    assert hits(2, "train") == hits(0, "validation") == 40


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("max_lines", [64, 12])
def test_shuffled_searches_solve_a_problem_of_their_split(split: Split, max_lines: int) -> None:
    rng = random.Random(3)
    in_list_order = 0
    for _ in range(60):
        prompt, search = draw_shuffled_search(SEARCHES, split, rng, max_lines=max_lines)
        problem = SEARCHES.problem(*numbers_and_target_of_search(search))
        assert problem.prompt == prompt
        assert SEARCHES.verify(problem, search).correct, search
        assert all(step.legal for step in SEARCHES.parse_steps(problem, search))
        assert SEARCHES.split_of(problem) == split
        assert 10 <= problem.target <= 50
        assert search.split("\n\n")[0].count("\n") <= max_lines
        in_list_order += search == search_trace(problem.numbers, problem.target).text
    assert in_list_order < 10
    short = replace(SEARCHES, max_search_lines=8)
    drawn = [draw_shuffled_search(short, "train", rng, max_lines=64)[1] for _ in range(10)]
    assert all(short.space.admits(*numbers_and_target_of_search(search)) for search in drawn)


@pytest.mark.parametrize(("make", "workers"), [(plays, 2), (searches, 0)])
def test_batches_depend_on_seed_and_number_but_not_on_workers(make: type[BatchData], workers: int) -> None:
    data = make()  # pyright: ignore[reportCallIssue]
    batches = [data.batch(number) for number in range(4)]
    assert batches[0] != batches[1]
    assert make(seed=1).batch(0) != batches[0]  # pyright: ignore[reportCallIssue]
    assert list(islice(make(workers=workers).train_dataloader(), 4)) == batches  # pyright: ignore[reportCallIssue]
    assert list(data.val_dataloader()) == [data.batch(0, split="validation")] != [batches[0]]


def test_play_corpus_is_reproducible() -> None:
    corpus = PlayCorpus(task=TASK, plays=20, seed=0)
    assert corpus() == corpus()
    assert len(corpus()) == 40


@pytest.mark.parametrize(
    ("change", "named"), [({"style": "direct"}, r"task\.style='direct'"), ({"max_lines": 3}, "max_lines.*4.*3")]
)
def test_shuffled_searches_reject_direct_style_and_too_few_lines(change: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        searches(**change)
