"""The figure of ``StepCredit``: steps and their credit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from callbacks.credit import StepCredit, TracedStep, draw, plain, title, traced_steps
from contrastive_reasoning.rewards.oracle import OracleReward
from contrastive_reasoning.rewards.verifier import VerifierReward
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.spans import token_bytes, token_spans
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.tasks.countdown import CountdownProblem
from tests.rollout_batches import rollout_batch
from tests.unit.callbacks.kit import Album, assert_only_watches
from tests.unit.lightning_modules.grpo_kit import TASK, TOKENIZER, fit, module

WRITTEN = ["9*3=27;27-7=20", "9-7=2;3*2=6", "9/7=1;3+9=12", "no step"]
"""Countdown from 3, 7, 9 to 20: solved; target lost by the first move; an illegal move; no step."""


def batch(texts: list[str]) -> RolloutBatch:
    table = token_bytes(TOKENIZER)
    ids = [TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in texts]
    width = max(map(len, ids))
    padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in ids])
    mask = torch.arange(width) < torch.tensor([[len(row)] for row in ids])
    problem, spans = CountdownProblem((3, 7, 9), 20, style="direct"), [token_spans(table, row) for row in ids]
    return rollout_batch([problem], mask, completion_ids=padded, texts=texts, token_spans=spans)


def oracle() -> OracleReward:
    return OracleReward(outcome=VerifierReward(task=TASK), task=TASK, weight=0.1)


def traced(row: int) -> list[TracedStep]:
    """Traced steps of a row. The advantage of a token is its position in the completion."""
    rollouts = batch(WRITTEN)
    advantages = torch.arange(rollouts.mask.shape[1]).float().expand(rollouts.mask.shape)
    return traced_steps(TASK, rollouts, oracle()(rollouts), advantages, row)


def test_traced_step_has_text_mean_credit_value_and_reachability() -> None:
    tokens = [TOKENIZER.decode([i]) for i in TOKENIZER(WRITTEN[0], add_special_tokens=False)["input_ids"]]
    border = tokens.index(";")
    first, second = traced(0)
    assert (first.text, first.value, first.in_reach, first.legal) == ("9*3=27", 1.0, True, True)
    assert first.credit == pytest.approx(sum(range(border)) / border)
    rest = range(border + 1, len(tokens))
    assert second.text == "27-7=20"
    assert second.credit == pytest.approx(sum(rest) / len(rest))
    assert [(step.value, step.in_reach) for step in traced(1)] == [(0.0, False), (0.0, False)]
    forbidden = traced(2)[0]
    assert (forbidden.legal, forbidden.value, forbidden.in_reach) == (False, None, None)


def test_step_credit_selects_first_correct_and_first_incorrect_row_with_steps() -> None:
    rollouts = batch(["no step", *WRITTEN[1:3], WRITTEN[0]])
    verdicts = oracle()(rollouts).verdicts
    assert verdicts is not None
    assert StepCredit(task=TASK, every=1, steps=5).rows(rollouts, verdicts) == [3, 1]


def step(text: str, credit: float, **changes: Any) -> TracedStep:
    return TracedStep(**{"text": text, "credit": credit, "value": 0.5, "in_reach": None, "legal": True} | changes)


def figure(*steps: TracedStep, reason: str = "", most: int = 24) -> Figure:
    return draw({title("p", Verdict(status="wrong", reason=reason)): list(steps)}, step=1, most=most)


def test_figure_lists_steps_top_down_and_legend_has_only_used_marks() -> None:
    drawn = figure(
        step("a", 2.0, in_reach=True),
        step("b", -1.0, in_reach=False),
        step("c", 1.0, value=None),
        step("d", 1.0),
        most=3,
    )
    left = drawn.axes[0]
    assert [label.get_text() for label in left.get_yticklabels()] == ["a", "b", "c"]
    bars: Any = left.patches
    assert [bar.get_width() for bar in bars] == [2.0, -1.0, 1.0]
    assert left.yaxis_inverted()
    assert "first 3 of 4 steps" in left.get_title(loc="left")
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["target in reach", "target lost"]


def test_figure_renders_hostile_text_without_glyph_warnings(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    hostile = "$\\frac{1}{$ _^ \x00\x1b \u202e 漢 \udcff 🙂\n\n| $x$"
    figure(step(hostile, 1.0), step("", 0.0), reason=hostile).savefig(tmp_path / "a.png")
    assert not [str(warning.message) for warning in recwarn if "Glyph" in str(warning.message)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\n b\t", "a b"), ("\x1b[31m", "\\x1b[31m"), ("漢", "\\u6f22"), ("x" * 9, "x" * 7 + "…"), ("é−", "é\\u2212")],
)
def test_plain_escapes_unprintable_characters_and_truncates(text: str, expected: str) -> None:
    assert plain(text, 8) == expected


def test_step_credit_draws_steps_1_and_2_and_leaves_weights_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    album, watcher = Album(), StepCredit(task=TASK, every=2, steps=5)
    monkeypatch.setattr(watcher, "rows", lambda rollouts, verdicts: [0])  # a random policy writes no move
    assert_only_watches(watcher, 3, logger=album, reward=oracle)
    assert [at for at, _ in album.figures["train/step_credit"]] == [1, 2]


def test_step_credit_skips_reward_without_step_values() -> None:
    album = Album()
    fit(module(), 1, StepCredit(task=TASK, every=1, steps=5), logger=album)
    assert not album.figures
