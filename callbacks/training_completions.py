"""What the policy wrote in training and what it was taught of it: a table, and a page with the advantage per token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning as L
from torch import Tensor

from callbacks.chosen_rows import mixed
from callbacks.credit_page import Trace, credit_page
from callbacks.figures import watching
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.rollout.spans import readable, visible_tokens
from contrastive_reasoning.tasks.base import Task, Verdict

TABLE, PAGE = "train/completions", "train/credit"


class TrainingCompletions(L.Callback):
    """Logs completions of the first training batch and of every ``every``-th: correct and incorrect ones. Only watches.

    Table: prompt, completion, verdict and reason, the reward, every part of it, and the mean advantage of its tokens.
    Page: the same completions, each token on the colour of the advantage that the module learned from. Reads
    ``credit``, ``advantages`` and ``rollout_step`` of the module. A step that taught the policy nothing, as in a
    reward's warm-up, has a table without advantages and no page.

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
        due = step == 1 or step % self.every == 0
        if not due or not watching(trainer) or pl_module.credit is None:
            return
        rollouts, credit, advantages = batch.rollouts, pl_module.credit, pl_module.advantages
        verdicts = verdicts_of(self.task, rollouts) if credit.verdicts is None else credit.verdicts
        chosen = mixed([verdict.correct for verdict in verdicts], self.rows)
        rows = [table_row(rollouts, credit, verdicts[row], advantages, row) for row in chosen]
        for log in _takers(trainer, "log_table"):
            log(TABLE, rows, step=step)
        if advantages is not None:
            tokenizer = pl_module.policy.tokenizer
            traces = [trace(rollouts, credit, verdicts[row], advantages, row, tokenizer) for row in chosen]
            page = credit_page(traces, step=step, longest=self.longest)
            for log in _takers(trainer, "log_page"):
                log(PAGE, page, step=step)


def _takers(trainer: L.Trainer, name: str) -> Iterator[Any]:
    return (getattr(logger, name) for logger in trainer.loggers if hasattr(logger, name))


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
        told=rewards_of(credit, row),
        prompt=readable(problem.prompt),
        tokens=visible_tokens(tokenizer, rollouts.completion_ids[row][written].tolist()),
        advantages=advantages[row][written].tolist(),
    )
