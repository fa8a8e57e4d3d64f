"""Tables of the policy's completions in validation and in training, the latter with their credit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lightning as L
from jinja2 import Environment

from callbacks.figures import due, log_with, watching
from contrastive_reasoning.evaluation.evaluator import completion_row
from contrastive_reasoning.evaluation.suite import MAIN
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rewards.base import verdicts_on
from contrastive_reasoning.rollout.spans import readable, visible_tokens
from contrastive_reasoning.tasks.base import Task

NEGATIVE, POSITIVE = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2)
DEEPEST = 0.65
"""Maximum share of the colour at the ends of the scale, the rest white, so that black text stays readable."""
SHARES = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Positions of the legend's colours, as shares of the scale's end."""
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Advantage per token, step {{ step }}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"><style>
body { margin: 1.5rem auto; max-width: 64rem; padding: 0 1rem; background: #fff; color: #1a1a1a;
       font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
.legend b { font-weight: normal; padding: .15rem .6rem; border: 1px solid #ccc; }
pre { margin: .3rem 0; padding: .5rem .7rem; border: 1px solid #ddd; white-space: pre-wrap; overflow-wrap: anywhere;
      font: .92rem/1.7 ui-monospace, Menlo, Consolas, monospace; unicode-bidi: isolate; }
.prompt, .numbers { color: #555; } .numbers { margin: .2rem 0; overflow-wrap: anywhere; }
</style></head>
<body><h1>Advantage per token, step {{ step }}</h1>
<p class="legend">
{%- for value in legend %}<b style="background:{{ value | colour }}">{{ value | signed }}</b>
{% else %}All advantages are 0.{% endfor %}{% if legend %}&nbsp; Point at a token to read its own.{% endif %}</p>
{% for trace in traces %}<h2>{{ trace.heading }}</h2>
<p class="numbers">{% for name, value in trace.numbers.items() %}{{ "" if loop.first else " · " }}{{ name }} {{ value | signed }}
{%- endfor %}</p>
<pre class="prompt">{{ trace.prompt[: 4 * longest] }}</pre>
<pre>
{%- for text, value in trace.tokens[:longest] -%}
<span style="background:{{ value | colour }}" title="{{ value | signed }}">{{ text }}</span>
{%- endfor -%}
</pre>
{% if trace.tokens | length > longest %}<p class="numbers">… {{ trace.tokens | length - longest }} more tokens</p>
{% endif %}{% endfor %}</body></html>
"""  # noqa: E501


class Completions(L.Callback):
    """Logs greedy completions with their verdicts. Only watches.

    They are of the first ``problems`` validation problems on the first rank.
    """

    def __init__(self, *, task: Task, problems: int) -> None:
        at_least(1, **{"callbacks.completions.problems": problems})
        self.task = task
        self.problems = problems
        self.rows: list[dict[str, Any]] = []

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.rows = []

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch.setting != MAIN:
            return
        for row, problem in enumerate(batch.problems[: self.problems - len(self.rows)]):
            text = batch.rollouts.texts[row * batch.rollouts.group_size]
            self.rows.append(completion_row(problem, text, self.task.verify(problem, text)))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            log_with(trainer, "log_table", "val/completions", self.rows, int(pl_module.rollout_step))


@dataclass(kw_only=True, eq=False)
class TrainingCompletions(L.Callback):
    """Logs completions of the first training batch and of every ``every``-th: correct and incorrect ones. Only watches.

    The table has prompt, completion, verdict and reason, the reward, each of its parts, and the mean advantage of the
    tokens. The page has the same completions, each token coloured by its advantage. Reads ``credit``, ``advantages``
    and ``rollout_step`` of the module. If the policy was not updated, as in a reward's warm-up, the table has no
    advantages and there is no page.

    Raises:
        ValueError: if ``rows``, ``every`` or ``longest`` is below 1.
    """

    task: Task
    """Verifies completions if the reward did not."""
    rows: int
    """Maximum number of completions."""
    every: int
    longest: int
    """Maximum number of tokens of a completion on the page."""

    def __post_init__(self) -> None:
        for name in ("rows", "every", "longest"):
            at_least(1, **{f"callbacks.training_completions.{name}": getattr(self, name)})

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, rollouts = int(pl_module.rollout_step), batch.rollouts
        credit, advantages = pl_module.result.credit, pl_module.result.advantages
        if not due(step, self.every) or not watching(trainer) or credit is None:
            return
        verdicts = verdicts_on(credit, self.task, rollouts)
        table, traces = [], []
        for row in mix_rows([verdict.correct for verdict in verdicts], self.rows):
            problem, verdict, written = rollouts.problem_of(row), verdicts[row], rollouts.mask[row]
            tokens, rewards = int(written.sum()), rewards_of(credit, row)
            table.append(
                {
                    **completion_row(problem, rollouts.texts[row], verdict),
                    "finish": rollouts.finish_reasons[row],
                    "tokens": tokens,
                    **rewards,
                    "advantage": None if advantages is None else float(advantages[row].sum()) / max(tokens, 1),
                }
            )
            if advantages is not None:
                spelled = visible_tokens(pl_module.policy.tokenizer, rollouts.completion_ids[row][written].tolist())
                reason = f": {readable(verdict.reason)}" if verdict.reason else ""
                traces.append(
                    Trace(
                        heading=f"{verdict.status}{reason} ({problem.id})",
                        numbers=rewards,
                        prompt=readable(problem.prompt),
                        tokens=list(zip(spelled, advantages[row][written].tolist(), strict=True)),
                    )
                )
        log_with(trainer, "log_table", "train/completions", table, step)
        if advantages is not None:
            log_with(trainer, "log_page", "train/credit", credit_page(traces, step=step, longest=self.longest), step)


def rewards_of(credit: Credit, row: int) -> dict[str, float]:
    """The reward of one rollout and each of its parts, by name."""
    parts = {f"reward/{name}": float(part[row]) for name, part in credit.parts.items()}
    return {"reward": float(credit.outcome[row]), **parts}


def mix_rows(correct: Sequence[bool], count: int) -> list[int]:
    """At most ``count`` rows in the order of the batch: half correct, half incorrect, as far as there are enough.

    Rows of one kind are taken at even strides, so that many groups appear. The choice depends on the verdicts alone.
    """
    right = [row for row, ok in enumerate(correct) if ok]
    wrong = [row for row, ok in enumerate(correct) if not ok]
    rights = min(len(right), max(count // 2, count - len(wrong)))
    wrongs = min(len(wrong), count - rights)
    chosen = [right[k * len(right) // rights] for k in range(rights)]
    return sorted(chosen + [wrong[k * len(wrong) // wrongs] for k in range(wrongs)])


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One completion on the page."""

    heading: str
    """Its verdict and the reason."""
    numbers: Mapping[str, float]
    """Numbers of the whole completion, by name."""
    prompt: str
    tokens: Sequence[tuple[str, float]]
    """The text of each token, and its advantage."""


def credit_page(traces: Sequence[Trace], *, step: int, longest: int) -> str:
    """The HTML page: at most ``longest`` tokens of a completion, and four times as many characters of a prompt.

    It contains text of policies and of problem authors: all of it is escaped, nothing is fetched, and no script runs.
    """
    limit = max((abs(value) for trace in traces for _, value in trace.tokens), default=0.0)
    environment = Environment(autoescape=True, keep_trailing_newline=True)
    environment.filters |= {"colour": lambda value: colour(value, limit), "signed": number}
    legend = [share * limit for share in SHARES] if limit else []
    return environment.from_string(PAGE).render(traces=traces, legend=legend, step=f"{step:,}", longest=longest)


def colour(value: float, limit: float) -> str:
    """The colour ``#rrggbb`` of a number on the scale −limit … limit: vermilion below, white at 0, blue above."""
    share = min(1.0, abs(value) / limit) if limit > 0 else 0.0
    end = POSITIVE if value > 0 else NEGATIVE
    return "#" + "".join(f"{round(255 + DEEPEST * share * (channel - 255)):02x}" for channel in end)


def number(value: float) -> str:
    """The number with three digits and a sign."""
    return f"{value:+.3g}".replace("-", "−") if value else "0"
