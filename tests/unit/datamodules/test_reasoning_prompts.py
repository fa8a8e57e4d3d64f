from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from contrastive_reasoning.tasks.base import Problem
from datamodules.reasoning_prompts import ProblemBatch, ProblemSteps, ReasoningPrompts, own_batch, rows_of_step
from tests.unit.datamodules.kit import countdown

PROBLEMS = [Problem(id=str(i), prompt="", answer="") for i in range(7)]
PLACES = [(0, 1), (0, 2), (1, 2)]
"""One process, and two ranks."""


def loader(problems: Sequence[Problem] = PROBLEMS, **changes: int) -> ProblemSteps:
    settings = {"problems_per_step": 3, "steps": 8, "first_step": 0, "seed": 0, "rank": 0, "ranks": 1}
    return ProblemSteps(problems=problems, **settings | changes)


def steps(**changes: int) -> list[list[str]]:
    return [[problem.id for problem in batch.problems] for batch in loader(**changes)]


def test_rows_of_step_permutes_the_rows_anew_each_epoch() -> None:
    seen = [row for step in range(7) for row in rows_of_step(step, 3, 7, seed=5)]
    epochs = [seen[start : start + 7] for start in (0, 7, 14)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_rows_of_step_take_every_seed_and_keep_the_draws_of_small_ones() -> None:
    for seed in (2**32, 20261128123456, 2**63 - 1):
        assert sorted(rows_of_step(0, 7, 7, seed=seed)) == list(range(7))
    expected = torch.randperm(7, generator=torch.Generator().manual_seed(5 * 1_000_003)).tolist()
    assert rows_of_step(0, 7, 7, seed=5) == expected


def test_problem_steps_are_determined_by_step_and_seed() -> None:
    whole = steps()
    assert len(whole) == 8
    assert [steps(first_step=first) for first in range(8)] == [whole[first:] for first in range(8)]
    assert len(loader(first_step=5)) == 8, "of the whole run"
    assert steps(seed=1) != whole
    assert sorted(rows_of_step(0, 14, 7, seed=0)) == sorted([*range(7), *range(7)])
    with pytest.raises(ValueError, match="no problems"):
        loader([])


def test_shares_of_all_ranks_form_the_batch_of_one_process() -> None:
    whole = steps(problems_per_step=6)
    shares = [steps(problems_per_step=6, rank=rank, ranks=3) for rank in range(3)]
    assert [[len(batch) for batch in share] for share in shares] == [[2] * 8] * 3
    for step, batch in enumerate(whole):
        assert [shares[place % 3][step][place // 3] for place in range(6)] == batch
    # problems repeat in a step, and a rank counts those of the others
    repeated = [list(loader(PROBLEMS[:2], problems_per_step=6, rank=rank, ranks=ranks)) for rank, ranks in PLACES]
    for alone, *ranks in zip(*repeated, strict=True):
        rows = [sorted(zip([p.id for p in b.problems], b.earlier, strict=True)) for b in (alone, *ranks)]
        assert rows[0] == sorted([*rows[1], *rows[2]]) == [(name, n) for name in "01" for n in range(3)]
    # a mini-batch is a run of places in a rank's batch; those of all ranks form one of the whole batch
    whole = steps(problems_per_step=8)[0]
    first, second = (steps(problems_per_step=8, rank=rank, ranks=2)[0] for rank in range(2))
    assert {*first[:2], *second[:2]} == set(whole[:4])
    assert {*first[2:], *second[2:]} == set(whole[4:])


@pytest.mark.parametrize(("count", "ranks"), [(7, 2), (7, 3), (6, 3), (1, 4)])
def test_own_batch_pads_uneven_shares_with_uncounted_problems(count: int, ranks: int) -> None:
    shares = [own_batch(PROBLEMS[:count], rank=rank, ranks=ranks) for rank in range(ranks)]
    assert len({len(share) for share in shares}) == 1, "as many on each"
    counted = [problem.id for share in shares for problem in share.problems[: share.counted]]
    assert sorted(counted) == [problem.id for problem in PROBLEMS[:count]], "each counts once"


TASK = countdown(counts=[3], train_problems=12, validation_problems=6)


def prompts(**changes: Any) -> ReasoningPrompts:
    settings: dict[str, Any] = {"task": TASK, "steps": 2, "problems_per_step": 3, "validation_problems": 5}
    return ReasoningPrompts(**settings | {"training_problems": 0, "max_prompt_tokens": None, "seed": 0} | changes)


def test_reasoning_prompts_yields_training_and_validation_batches() -> None:
    train = list(prompts().train_dataloader())
    assert [len(batch) for batch in train] == [3, 3]
    assert all(isinstance(batch, ProblemBatch) and batch.rollouts is None for batch in train)
    validation = list(prompts().val_dataloader())
    kept = [problem for batch in validation for problem in batch.problems]
    assert kept == list(TASK.problems("validation")[:5])
    assert not {problem.id for problem in kept} & {problem.id for batch in train for problem in batch.problems}
    with pytest.raises(ValueError, match=r"validation_problems.*50.*6"):
        prompts(validation_problems=50).val_dataloader()
    with pytest.raises(ValueError, match=r"problems_per_step.*0"):
        prompts(problems_per_step=0)


@pytest.mark.parametrize(("key", "part"), [("steps", "train"), ("validation_problems", "val")])
def test_nothing_to_train_or_validate_is_said(key: str, part: str) -> None:
    data = prompts()
    setattr(data, key, 0)
    with pytest.warns(UserWarning, match=f"{key} is 0"):
        assert not list(getattr(data, f"{part}_dataloader")())


def test_training_problems_are_validated_under_a_separate_setting() -> None:
    batches = list(prompts(training_problems=4).val_dataloader())
    assert [(batch.setting, len(batch)) for batch in batches] == [
        ("main", 3),
        ("main", 2),
        ("training_problems", 3),
        ("training_problems", 1),
    ]
    tried = [problem for batch in batches[2:] for problem in batch.problems]
    assert tried == list(TASK.problems("train")[:4])
    with pytest.raises(ValueError, match=r"training_problems.*-1"):
        prompts(training_problems=-1)


def test_train_dataloader_starts_at_module_step_and_checks_rank_shares() -> None:
    data = prompts()
    module = SimpleNamespace(rollout_step=1)
    data.trainer = SimpleNamespace(lightning_module=module, global_rank=0, world_size=1)  # pyright: ignore
    assert len(list(data.train_dataloader())) == 1
    module = SimpleNamespace(rollout_step=0, minibatches_per_rollout=3)
    data.trainer = SimpleNamespace(lightning_module=module, global_rank=0, world_size=2)  # pyright: ignore

    with pytest.raises(ValueError, match=r"3 .*\(2\).*\(3\)"):
        data.train_dataloader()


def with_prompts_of(lengths: Sequence[int], *, max_prompt_tokens: int, log: Mock) -> ReasoningPrompts:
    """Prompts with these numbers of words, for a policy whose tokens are words."""
    problems = [Problem(id=f"p{row}", prompt="word " * length, answer="") for row, length in enumerate(lengths)]
    task = SimpleNamespace(problems=lambda split: problems)
    data = prompts(task=task, steps=8, problems_per_step=1, validation_problems=0, max_prompt_tokens=max_prompt_tokens)
    module = SimpleNamespace(policy=SimpleNamespace(prompt_ids=str.split), rollout_step=0)
    data.trainer = SimpleNamespace(lightning_module=module, global_rank=0, world_size=1, loggers=[log])  # pyright: ignore
    return data


def test_too_long_prompts_are_skipped_with_a_warning_and_logged() -> None:
    log = Mock()
    data = with_prompts_of([3, 30, 4, 31, 5, 20, *[40] * 5], max_prompt_tokens=20, log=log)
    with pytest.warns(UserWarning, match=r"7 of 11 .*20 .*\(p1, p3, p6, p7, p8, …\)"):
        kept = {problem.id for batch in data.train_dataloader() for problem in batch.problems}
    assert kept == {"p0", "p2", "p4", "p5"}
    assert log.log_metrics.call_args.args[0] == {"train/prompts_left_out": 7}
    name, rows = log.log_table.call_args.args[:2]
    assert name == "train/prompts_left_out"
    assert rows[:2] == [{"problem": "p1", "prompt_tokens": 30}, {"problem": "p3", "prompt_tokens": 31}]
    log.reset_mock()
    assert len(list(with_prompts_of([3, 20], max_prompt_tokens=20, log=log).train_dataloader())) == 8
    assert not log.mock_calls
    data = with_prompts_of([30, 25], max_prompt_tokens=20, log=log)
    with pytest.raises(ValueError, match=r"2 .*max_prompt_tokens=20.*25"):
        data.train_dataloader()
