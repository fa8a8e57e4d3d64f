"""What the policy writes: tables of validation completions and of training completions, these with their credit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning as L
from torch import Tensor

from callbacks.credit import Trace, credit_page
from callbacks.figures import due, log_with, watching
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.rollout.spans import readable, visible_tokens
from contrastive_reasoning.tasks.base import Task, Verdict


class Completions(L.Callback):
    """Logs the greedy completions of the first ``problems`` validation problems with their verdicts. Only watches."""

    def __init__(self, *, task: Task, problems: int) -> None:
        if problems < 1:
            raise ValueError(f"callbacks.completions.problems must be at least 1, got {problems}")
        self.task = task
        self.problems = problems
        self.rows: list[dict[str, Any]] = []

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.rows = []

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Keep the rows of this batch that are among the first problems."""
        for row, problem in enumerate(batch.problems[: self.problems - len(self.rows)]):
            text = batch.rollouts.texts[row * batch.rollouts.group_size]
            verdict = self.task.verify(problem, text)
            self.rows.append(
                {
                    "problem": problem.id,
                    "prompt": problem.prompt,
                    "answer": problem.answer,
                    "completion": readable(text),
                    "status": verdict.status,
                    "reason": verdict.reason,
                }
            )

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            log_with(trainer, "log_table", "val/completions", self.rows, int(pl_module.rollout_step))


class TrainingCompletions(L.Callback):
    """Logs completions of the first training batch and of every ``every``-th: correct and incorrect ones. Only watches.

    Table: prompt, completion, verdict and reason, the reward, every part of it, and the mean advantage of its tokens.
    Page: the same completions, each token on the colour of its advantage. Reads ``credit``, ``advantages`` and
    ``rollout_step`` of the module. Where the policy was not updated, as in a reward's warm-up, the table has no
    advantages and there is no page.

    Args:
        task: verifies where the reward did not.
        rows: completions at most.
        every: rollout batches from one table to the next.
        longest: tokens of a completion that the page shows at most.

    Raises:
        ValueError: if ``rows``, ``every`` or ``longest`` is below 1.
    """

    def __init__(self, *, task: Task, rows: int, every: int, longest: int) -> None:
        for name, value in {"rows": rows, "every": every, "longest": longest}.items():
            if value < 1:
                raise ValueError(f"callbacks.training_completions.{name} must be at least 1, got {value}")
        self.task = task
        self.rows = rows
        self.every = every
        self.longest = longest

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = int(pl_module.rollout_step)
        if not due(step, self.every) or not watching(trainer) or pl_module.credit is None:
            return
        rollouts, credit, advantages = batch.rollouts, pl_module.credit, pl_module.advantages
        verdicts = verdicts_of(self.task, rollouts) if credit.verdicts is None else credit.verdicts
        chosen = mixed([verdict.correct for verdict in verdicts], self.rows)
        rows = [table_row(rollouts, credit, verdicts[row], advantages, row) for row in chosen]
        log_with(trainer, "log_table", "train/completions", rows, step)
        if advantages is not None:
            tokenizer = pl_module.policy.tokenizer
            traces = [trace(rollouts, credit, verdicts[row], advantages, row, tokenizer) for row in chosen]
            log_with(trainer, "log_page", "train/credit", credit_page(traces, step=step, longest=self.longest), step)


def table_row(
    rollouts: RolloutBatch, credit: Credit, verdict: Verdict, advantages: Tensor | None, row: int
) -> dict[str, Any]:
    """One completion, as text and plain numbers."""
    problem = rollouts.problem_of(row)
    tokens = int(rollouts.mask[row].sum())
    mean = None if advantages is None else float(advantages[row].sum()) / max(tokens, 1)
    return {
        "problem": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "completion": readable(rollouts.texts[row]),
        "status": verdict.status,
        "reason": readable(verdict.reason),
        "finish": rollouts.finish_reasons[row],
        "tokens": tokens,
        **rewards_of(credit, row),
        "advantage": mean,
    }


def rewards_of(credit: Credit, row: int) -> dict[str, float]:
    """The reward of one rollout and each of its parts, by name."""
    parts = {f"reward/{name}": float(part[row]) for name, part in credit.parts.items()}
    return {"reward": float(credit.outcome[row]), **parts}


def trace(
    rollouts: RolloutBatch, credit: Credit, verdict: Verdict, advantages: Tensor, row: int, tokenizer: Any
) -> Trace:
    """One completion for the page: its own tokens, padding left out, each with its own advantage."""
    written = rollouts.mask[row]
    reason = f": {readable(verdict.reason)}" if verdict.reason else ""
    problem = rollouts.problem_of(row)
    return Trace(
        heading=f"{verdict.status}{reason} ({problem.id})",
        numbers=rewards_of(credit, row),
        prompt=readable(problem.prompt),
        tokens=visible_tokens(tokenizer, rollouts.completion_ids[row][written].tolist()),
        advantages=advantages[row][written].tolist(),
    )


def mixed(correct: Sequence[bool], count: int) -> list[int]:
    """At most ``count`` rows in the order of the batch: half of them correct, half not, or what there is.

    Rows of one kind are taken in even strides, so that many groups show. A function of the verdicts alone.
    """
    right = [row for row, ok in enumerate(correct) if ok]
    wrong = [row for row, ok in enumerate(correct) if not ok]
    rights = min(len(right), max(count // 2, count - len(wrong)))
    return sorted([*strided(right, rights), *strided(wrong, count - rights)])


def strided(rows: Sequence[int], count: int) -> list[int]:
    """``count`` of the rows in even strides, or all."""
    count = min(count, len(rows))
    return [rows[k * len(rows) // count] for k in range(count)]
