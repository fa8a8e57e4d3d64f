from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import islice

import pytest

from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask, search_trace
from datamodules.plays import Play, PlayCorpus, Plays, PlayStream, draw_play

TASK = CountdownTask(
    style="direct",
    train="generated",
    test="generated",
    longproc_dir=None,
    counts=[3, 4],
    number_range=[1, 20],
    target_range=[10, 50],
    max_search_lines=None,
    train_problems=10,
    validation_problems=10,
    test_problems=10,
    seed=0,
)


def problem_of(prompt: str) -> CountdownProblem:
    numbers, target = prompt.strip().split(" = ")
    return CountdownProblem(tuple(int(n) for n in numbers.split()), int(target), style="direct")


@pytest.mark.parametrize(
    ("aimed", "play", "following"),
    [
        (True, ("14 2 9 17 = 11\n", "17*2=34;14+9=23;34-23=11"), ("20 9 18 = 18\n", "18/9=2;20-2=18")),
        (False, ("14 2 9 17 = 40\n", "17*2=34;14+9=23;34-23=11"), ("18 20 5 10 = 31\n", "18+5=23;23-20=3;10*3=30")),
    ],
)
def test_direct_plays_stay_as_they_were_drawn(aimed: bool, play: Play, following: Play) -> None:
    """The embedded policies were warmed up on these."""
    rng = random.Random(0)
    assert [draw_play(TASK, "train", rng, aimed=aimed) for _ in range(2)] == [play, following]


@pytest.mark.parametrize("aimed", [True, False])
@pytest.mark.parametrize("style", ["longproc", "annotated"])
def test_a_search_style_is_taught_by_searches_that_succeed(style: str, aimed: bool) -> None:
    task = replace(TASK, style=style, max_search_lines=40)
    rng = random.Random(5)
    for _ in range(20):
        prompt, completion = draw_play(task, "train", rng, aimed=aimed)
        assert "Try" in completion
        numbers, target = posed_in(completion)
        problem = task.problem(numbers, target)
        assert problem.prompt == prompt
        assert completion == search_trace(numbers, target, style=style).text
        assert task.verify(problem, completion).correct, completion
        assert task.split_of(problem) == "train"
        assert task.space.admits(numbers, target)


def posed_in(search: str) -> tuple[tuple[int, ...], int]:
    """The numbers and the target that a written search begins with."""
    found = re.search(r"\[([0-9, ]+)\]", search)
    target = re.search(r"[Tt]arget\D*(\d+)", search)
    assert found is not None
    assert target is not None
    return tuple(map(int, found[1].split(", "))), int(target[1])


@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_play_solves_a_problem_of_its_split(split: str) -> None:
    rng = random.Random(3)
    for _ in range(300):
        prompt, completion = draw_play(TASK, split, rng, aimed=True)  # pyright: ignore[reportArgumentType]
        problem = problem_of(prompt)
        assert TASK.problem(problem.numbers, problem.target).prompt == prompt
        assert TASK.verify(problem, completion).correct, (prompt, completion)
        assert TASK.split_of(problem) == split
        assert len(problem.numbers) in (3, 4)
        assert 10 <= problem.target <= 50


def test_unaimed_plays_are_legal_and_mostly_miss() -> None:
    rng = random.Random(4)
    hits = 0
    for _ in range(200):
        prompt, completion = draw_play(TASK, "train", rng, aimed=False)
        problem = problem_of(prompt)
        steps = TASK.parse_steps(problem, completion)
        assert len(steps) == len(problem.numbers) - 1
        assert all(step.legal for step in steps)
        assert TASK.split_of(problem) == "train"
        hits += TASK.verify(problem, completion).correct
    assert hits < 20


def test_plays_are_unaimed_first() -> None:
    def hits(step: int) -> int:
        pairs = stream(unaimed_steps=2, batch_size=40).batch(step)
        return sum(TASK.verify(problem_of(prompt), completion).correct for prompt, completion in pairs)

    assert hits(1) < 10
    assert hits(2) == 40


def stream(first_step: int = 0, seed: int = 0, unaimed_steps: int = 1, batch_size: int = 4) -> PlayStream:
    return PlayStream(
        task=TASK,
        split="train",
        batch_size=batch_size,
        unaimed_steps=unaimed_steps,
        seed=seed,
        first_step=first_step,
    )


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    batches = list(islice(stream(), 5))
    assert list(islice(stream(first_step=3), 2)) == batches[3:]
    assert batches[0] != batches[1]
    assert next(iter(stream(seed=1))) != batches[0]


def test_workers_change_nothing() -> None:
    def first(workers: int) -> list[object]:
        data = Plays(task=TASK, batch_size=4, unaimed_steps=1, validation_batches=1, workers=workers, seed=0)
        return list(islice(data.train_dataloader(), 5))

    assert first(0) == first(2) == list(islice(stream(), 5))


def test_the_corpus_is_reproducible() -> None:
    corpus = PlayCorpus(task=TASK, plays=20, seed=0)
    assert corpus() == corpus()
    assert len(corpus()) == 40
