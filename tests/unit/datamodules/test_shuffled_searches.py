from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import pytest

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown import BareCountdownTask, search_trace
from datamodules.shuffled_searches import (
    ShuffledSearches,
    ShuffledSearchStream,
    draw_search,
    lines_written,
)

TASK = BareCountdownTask(
    style="longproc",
    train="generated",
    test="generated",
    longproc_dir=None,
    counts=[3],
    number_range=[1, 20],
    target_range=[10, 50],
    max_search_lines=None,
    train_problems=10,
    validation_problems=10,
    test_problems=10,
    seed=0,
)


def posed(prompt: str) -> tuple[tuple[int, ...], int]:
    numbers, target = prompt.strip().split(" = ")
    return tuple(map(int, numbers.split())), int(target)


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("max_lines", [64, 12])
def test_every_search_solves_a_problem_of_its_split(split: Split, max_lines: int) -> None:
    rng = random.Random(3)
    in_list_order = 0
    for _ in range(60):
        prompt, search = draw_search(TASK, split, rng, max_lines=max_lines)
        problem = TASK.problem(*posed(prompt))
        assert problem.prompt == prompt
        assert TASK.verify(problem, search).correct, search
        assert all(step.legal for step in TASK.parse_steps(problem, search))
        assert TASK.split_of(problem) == split
        assert 10 <= problem.target <= 50
        assert lines_written(search) <= max_lines
        in_list_order += search == search_trace(problem.numbers, problem.target).text
    assert in_list_order < 10


def test_lines_are_counted_under_the_header() -> None:
    text = search_trace((50, 50, 7), 7).text
    assert lines_written(text) == text.index("\n\n") - len(text[: text.index("\n\n")].replace("\n", "")) == 9


def test_problems_are_chosen_as_the_task_admits_them() -> None:
    short = replace(TASK, max_search_lines=8)
    rng = random.Random(4)
    for _ in range(10):
        prompt, _ = draw_search(short, "train", rng, max_lines=64)
        assert short.space.admits(*posed(prompt))


def stream(first_step: int = 0, seed: int = 0) -> ShuffledSearchStream:
    return ShuffledSearchStream(task=TASK, split="train", batch_size=4, max_lines=40, seed=seed, first_step=first_step)


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    batches = list(islice(stream(), 4))
    assert list(islice(stream(first_step=2), 2)) == batches[2:]
    assert batches[0] != batches[1]
    assert next(iter(stream(seed=1))) != batches[0]


def test_workers_change_nothing() -> None:
    def first(workers: int) -> list[object]:
        data = ShuffledSearches(task=TASK, batch_size=4, max_lines=40, validation_batches=1, workers=workers, seed=0)
        return list(islice(data.train_dataloader(), 4))

    assert first(0) == first(2) == list(islice(stream(), 4))


def test_a_style_without_search_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a style that writes the search, got task\.style='direct'"):
        data(style="direct", max_lines=40)


def test_a_bound_under_the_shortest_search_is_refused() -> None:
    with pytest.raises(ValueError, match="max_lines must be at least 4, the shortest search, got 3"):
        data(style="longproc", max_lines=3)


def data(*, style: str, max_lines: int) -> ShuffledSearches:
    task = replace(TASK, style=style)
    return ShuffledSearches(task=task, batch_size=4, max_lines=max_lines, validation_batches=1, workers=0, seed=0)
