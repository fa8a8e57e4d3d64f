"""The table of completions holds the same problems each time."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from callbacks.completions import Completions
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask
from datamodules.reasoning_prompts import ProblemBatch
from experiments.run_folder.logger import RunFolderLogger

TASK = CountdownTask(
    style="direct",
    train="generated",
    test="generated",
    longproc_dir=None,
    counts=[2],
    number_range=[1, 9],
    target_range=[1, 20],
    max_search_lines=None,
    train_problems=1,
    validation_problems=1,
    test_problems=1,
    seed=0,
)


def batch(texts: list[str]) -> ProblemBatch:
    """Two rollouts a problem, so that the first of each group is shown."""
    problems = ProblemBatch([CountdownProblem((5, 3 + i), 8 + i, style="direct") for i in range(len(texts) // 2)])
    empty = torch.zeros(len(texts), 0)
    problems.rollouts = RolloutBatch(
        problems=problems.problems,
        prompt_ids=torch.zeros(len(problems), 1, dtype=torch.long),
        prompt_mask=torch.ones(len(problems), 1, dtype=torch.bool),
        completion_ids=empty.long(),
        mask=empty.bool(),
        old_log_probs=empty,
        temperature=1.0,
        pooled=None,
        texts=texts,
        token_spans=[[] for _ in texts],
        finish_reasons=["stop" for _ in texts],
        group_size=2,
    )
    return problems


def validate(callback: Completions, trainer: Any, batches: list[ProblemBatch], step: int) -> None:
    module = SimpleNamespace(rollout_step=step)
    callback.on_validation_epoch_start(trainer, module)
    for i, one in enumerate(batches):
        callback.on_validation_batch_end(trainer, module, None, one, i)
    callback.on_validation_epoch_end(trainer, module)


def test_the_first_problems_are_written_with_their_verdicts(tmp_path: Path) -> None:
    trainer = SimpleNamespace(loggers=[RunFolderLogger(folder=tmp_path), object()], sanity_checking=False)
    callback = Completions(task=TASK, problems=3)
    batches = [batch(["5+3=8", "x", "\udcc3", "x"]), batch(["", "x", "never shown", "x"])]
    for step in (0, 20):
        validate(callback, trainer, batches, step)
    for step in (0, 20):
        rows = json.loads((tmp_path / "tables" / "val" / "completions" / f"{step}.json").read_text())
        assert [row["completion"] for row in rows] == ["5+3=8", "\ufffd", ""]
        assert rows[0]["status"] == "ok"
        assert all(row["status"] != "ok" and row["reason"] for row in rows[1:])


def test_lightnings_trial_validation_writes_nothing(tmp_path: Path) -> None:
    trainer = SimpleNamespace(loggers=[RunFolderLogger(folder=tmp_path)], sanity_checking=True)
    validate(Completions(task=TASK, problems=3), trainer, [batch(["5+3=8", "x"])], step=0)
    assert not (tmp_path / "tables").exists()


def test_at_least_one_problem_is_asked_for() -> None:
    with pytest.raises(ValueError, match="problems must be at least 1, got 0"):
        Completions(task=TASK, problems=0)
