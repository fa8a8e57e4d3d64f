from __future__ import annotations

import random
from itertools import islice

import pytest

from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask
from datamodules.plays import PlayCorpus, Plays, PlayStream, draw_play

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
