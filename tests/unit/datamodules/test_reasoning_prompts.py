from __future__ import annotations

from types import SimpleNamespace

import pytest

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import CountdownTask
from datamodules.collate import ProblemBatch
from datamodules.reasoning_prompts import ProblemSteps, ReasoningPrompts, rows_of_step

PROBLEMS = [Problem(id=str(i), prompt="", answer="") for i in range(7)]


def steps(first_step: int = 0, seed: int = 0) -> list[list[str]]:
    loader = ProblemSteps(PROBLEMS, problems_per_step=3, steps=8, first_step=first_step, seed=seed)
    return [[problem.id for problem in batch.problems] for batch in loader]


def test_every_epoch_is_a_permutation_of_its_own() -> None:
    seen = [row for step in range(7) for row in rows_of_step(step, 3, 7, seed=5)]
    epochs = [seen[start : start + 7] for start in (0, 7, 14)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_step_alone_says_what_comes() -> None:
    whole = steps()
    assert len(whole) == 8
    assert [steps(first_step=first) for first in range(8)] == [whole[first:] for first in range(8)]


def test_seeds_give_other_orders() -> None:
    assert steps(seed=0) != steps(seed=1)


def test_a_batch_larger_than_the_split() -> None:
    assert sorted(rows_of_step(0, 14, 7, seed=0)) == sorted([*range(7), *range(7)])


def test_length_counts_the_whole_run() -> None:
    assert len(ProblemSteps(PROBLEMS, problems_per_step=3, steps=8, first_step=5, seed=0)) == 8


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(ValueError, match="the training split has no problems"):
        ProblemSteps([], problems_per_step=3, steps=8, first_step=0, seed=0)


def prompts(task: CountdownTask, validation_problems: int = 5) -> ReasoningPrompts:
    return ReasoningPrompts(
        task=task, problems_per_step=3, validation_problems=validation_problems, steps=2, max_prompt_tokens=None, seed=0
    )


@pytest.fixture(scope="module")
def task() -> CountdownTask:
    return CountdownTask(
        style="direct",
        train="generated",
        test="generated",
        longproc_dir=None,
        counts=[3],
        number_range=[1, 20],
        target_range=[10, 50],
        max_search_lines=None,
        train_problems=12,
        validation_problems=6,
        test_problems=2,
        seed=0,
    )


def test_batches_of_a_task(task: CountdownTask) -> None:
    train = list(prompts(task).train_dataloader())
    assert [len(batch) for batch in train] == [3, 3]
    assert all(isinstance(batch, ProblemBatch) and batch.rollouts is None for batch in train)
    validation = list(prompts(task).val_dataloader())
    kept = [problem for batch in validation for problem in batch.problems]
    assert kept == list(task.problems("validation")[:5])
    assert not {problem.id for problem in kept} & {problem.id for batch in train for problem in batch.problems}


def test_a_resumed_module_says_where_to_go_on(task: CountdownTask) -> None:
    data = prompts(task)
    data.trainer = SimpleNamespace(lightning_module=SimpleNamespace(rollout_step=1))  # pyright: ignore
    assert len(list(data.train_dataloader())) == 1


def test_too_few_validation_problems(task: CountdownTask) -> None:
    with pytest.raises(ValueError, match="validation_problems is 50, but the split has only 6 problems"):
        prompts(task, validation_problems=50).val_dataloader()


def test_no_problems_per_step(task: CountdownTask) -> None:
    with pytest.raises(ValueError, match="problems_per_step must be at least 1, got 0"):
        ReasoningPrompts(task=task, problems_per_step=0, validation_problems=1, steps=1, max_prompt_tokens=None, seed=0)
