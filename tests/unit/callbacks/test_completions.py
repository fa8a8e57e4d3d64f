"""Tables of validation and training completions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from callbacks.completions import Completions, TrainingCompletions
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask
from datamodules.reasoning_prompts import ProblemBatch
from experiments.run_folder.logger import RunFolderLogger
from tests.unit.callbacks.test_credit import Page
from tests.unit.lightning_modules.grpo_kit import TASK, TOKENIZER, Digits, fit, module, weights
from tests.unit.lightning_modules.test_grpo_clipo import clipo

EASY = CountdownTask(
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
    callback = Completions(task=EASY, problems=3)
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
    validate(Completions(task=EASY, problems=3), trainer, [batch(["5+3=8", "x"])], step=0)
    assert not (tmp_path / "tables").exists()


def test_at_least_one_problem_is_asked_for() -> None:
    with pytest.raises(ValueError, match="problems must be at least 1, got 0"):
        Completions(task=EASY, problems=0)


class EveryTokenItsOwn:
    """No two tokens of a batch are taught alike, so that a colour on another's token would show."""

    def __call__(self, credit: Credit, mask: Tensor, group_size: int) -> Tensor:
        numbers = torch.arange(1.0, mask.numel() + 1).view(mask.shape)
        return torch.where(numbers.long() % 2 == 0, numbers, -numbers) * mask


class Judged:
    """Digits, with every third completion said to be correct."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = Digits()(rollouts)
        verdicts = [Verdict(status="wrong" if row % 3 else "ok", reason="<i>") for row in range(len(rollouts))]
        return Credit(outcome=2 * credit.outcome, parts=credit.parts, verdicts=verdicts)


class Rollouts(L.Callback):
    """The rollouts of each step, by step."""

    def __init__(self) -> None:
        self.of: dict[int, RolloutBatch] = {}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.of[pl_module.rollout_step] = batch.rollouts


def watcher(**changes: Any) -> TrainingCompletions:
    return TrainingCompletions(**{"task": TASK, "rows": 4, "every": 2, "longest": 100} | changes)


def table(folder: Path, step: int) -> list[dict[str, Any]]:
    return json.loads((folder / "tables" / "train" / "completions" / f"{step}.json").read_text())


def test_the_colours_are_on_the_tokens_that_were_taught(tmp_path: Path) -> None:
    seen = Rollouts()
    trained = module(reward=Judged(), advantage=EveryTokenItsOwn())
    fit(trained, 1, watcher(), seen, logger=RunFolderLogger(folder=tmp_path))
    page = Page((tmp_path / "pages" / "train" / "credit" / "1.html").read_text())
    rollouts, expected = seen.of[1], []
    used = EveryTokenItsOwn()(Credit(outcome=torch.zeros(12), parts={}), rollouts.mask, 4)
    for row in (0, 1, 6, 7):  # two of rows 0, 3, 6, 9, which are correct, and two of the others
        for token, advantage, written in zip(rollouts.completion_ids[row], used[row], rollouts.mask[row], strict=True):
            if written:
                expected.append((TOKENIZER.decode([int(token)]), f"{advantage:+.3g}".replace("-", "−")))
    assert len(page.tokens) == len(expected) > 10
    assert [title for _, _, title in page.tokens] == [advantage for _, advantage in expected]
    pairs = zip((text for text, _, _ in page.tokens), (decoded for decoded, _ in expected), strict=True)
    plain = [(text, decoded) for text, decoded in pairs if "⟨" not in text]
    assert len(plain) > 5
    assert all(text == decoded for text, decoded in plain)


def test_a_row_tells_the_verdict_the_reward_its_parts_and_the_advantage(tmp_path: Path) -> None:
    seen = Rollouts()
    fit(module(reward=Judged()), 1, watcher(), seen, logger=RunFolderLogger(folder=tmp_path))
    rows, rollouts = table(tmp_path, 1), seen.of[1]
    credit = Judged()(rollouts)
    for row, at in zip(rows, (0, 1, 6, 7), strict=True):
        group = credit.outcome.view(-1, 4)[at // 4]
        relative = float((credit.outcome[at] - group.mean()) / (group.std() + 1e-6))
        assert row["completion"] == readable(rollouts.texts[at])
        assert row["prompt"] == rollouts.problem_of(at).prompt
        assert (row["status"], row["reason"]) == (("wrong", "ok")[at % 3 == 0], "<i>")
        assert row["reward"] == pytest.approx(2 * float(credit.parts["digits"][at]))
        assert row["reward/digits"] == pytest.approx(float(credit.parts["digits"][at]))
        assert row["advantage"] == pytest.approx(relative, abs=1e-4)
        assert row["tokens"] == int(rollouts.mask[at].sum())


def test_the_first_step_and_every_other_are_written_and_training_does_not_notice(tmp_path: Path) -> None:
    watched, alone = module(), module()
    fit(watched, 5, watcher(), logger=RunFolderLogger(folder=tmp_path))
    fit(alone, 5)
    for folder, kind in (("tables/train/completions", "json"), ("pages/train/credit", "html")):
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == [f"{k}.{kind}" for k in (1, 2, 4)]
    assert torch.equal(weights(watched), weights(alone))


def test_while_only_the_reward_learns_there_are_no_advantages_and_no_page(tmp_path: Path) -> None:
    reward = clipo(warmup_steps=2)
    fit(module(reward=reward), 2, watcher(), logger=RunFolderLogger(folder=tmp_path))
    assert [row["advantage"] for row in table(tmp_path, 2)] == [None] * 4
    assert None not in [row["advantage"] for row in table(tmp_path, 4)]
    assert [path.name for path in (tmp_path / "pages" / "train" / "credit").iterdir()] == ["4.html"]


@pytest.mark.parametrize("name", ["rows", "every", "longest"])
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"callbacks.training_completions.{name} must be at least 1, got 0"):
        watcher(**{name: 0})
