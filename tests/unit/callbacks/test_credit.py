"""The page of advantages per token, and the figure of steps."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from callbacks.completions import mixed
from callbacks.credit import StepCredit, StepTrace, Trace, TracedStep, credit_page, draw, plain, step_trace
from callbacks.figures import colour
from contrastive_reasoning.rewards.oracle import OracleReward
from contrastive_reasoning.rewards.verifier import VerifierReward
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.spans import token_bytes, token_spans
from contrastive_reasoning.tasks.countdown import CountdownProblem
from tests.unit.callbacks.test_projections import Pictures
from tests.unit.lightning_modules.grpo_kit import TASK, TOKENIZER, fit, module, weights

HOSTILE = "<script>alert(1)</script> \" onmouseover='x' &lt; </pre></span>"


class Page(HTMLParser):
    """What is on a page: the tags, and of each token its text, colour and title."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.tokens: list[list[str]] = []
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag == "span"
        if self._inside:
            named = dict(attrs)
            assert set(named) == {"style", "title"}
            self.tokens.append(["", (named["style"] or "").removeprefix("background:"), named["title"] or ""])

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "span"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.tokens[-1][0] += data


def trace(tokens: list[str], advantages: list[float], text: str = "wrong") -> Trace:
    return Trace(heading=text, numbers={"reward": 1.0}, prompt=text, tokens=tokens, advantages=advantages)


def test_each_token_has_its_text_its_colour_and_its_number() -> None:
    page = Page(credit_page([trace(["21", "+", " 16"], [-2.0, 0.0, 1.0])], step=3, longest=9))
    assert page.tokens == [["21", "#e49659", "−2"], ["+", "#ffffff", "0"], [" 16", "#acd1e6", "+1"]]


def test_colours_are_one_scale_for_all_completions_and_the_legend_names_its_ends() -> None:
    text = credit_page([trace(["a"], [0.5]), trace(["b"], [-4.0])], step=1, longest=9)
    assert Page(text).tokens[0][1] == colour(0.5, 4.0)
    assert all(f">{number}</b>" in text for number in ("−4", "−2", "0", "+2", "+4"))


def test_what_was_written_is_never_markup() -> None:
    hostile = Page(credit_page([trace([HOSTILE], [1.0], text=HOSTILE)], step=1, longest=9))
    tame = Page(credit_page([trace(["a"], [1.0])], step=1, longest=9))
    assert hostile.tags == tame.tags
    assert hostile.tokens[0][0] == HOSTILE


def test_a_long_completion_is_cut_and_says_so() -> None:
    text = credit_page([trace(["a"] * 12, [1.0] * 12, text="p" * 100)], step=1, longest=10)
    assert len(Page(text).tokens) == 10
    assert "2 more tokens" in text
    assert "p" * 40 + "<" in text


def test_where_nothing_was_taught_no_scale_is_shown() -> None:
    text = credit_page([trace(["a"], [0.0])], step=1, longest=9)
    assert "All advantages are 0" in text
    assert Page(text).tokens == [["a", "#ffffff", "0"]]


def test_as_many_advantages_as_tokens() -> None:
    with pytest.raises(ValueError, match="2 tokens has 1 advantages"):
        trace(["a", "b"], [1.0])


@pytest.mark.parametrize(
    ("correct", "count", "rows"),
    [
        ([True, True, True, False, False, False], 4, [0, 1, 3, 4]),
        ([False] * 8, 4, [0, 2, 4, 6]),
        ([False] * 5 + [True], 4, [0, 1, 3, 5]),
        ([True, False], 9, [0, 1]),
        ([], 3, []),
    ],
)
def test_both_kinds_are_chosen_where_there_are_both(correct: list[bool], count: int, rows: list[int]) -> None:
    assert mixed(correct, count) == rows


WRITTEN = ["9*3=27;27-7=20", "9-7=2;3*2=6", "9/7=1;3+9=12", "no step"]
"""Countdown from 3, 7, 9 to 20: solved; lost by its first move; a move that the rules forbid; nothing."""


def batch(texts: list[str]) -> RolloutBatch:
    table = token_bytes(TOKENIZER)
    ids = [TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in texts]
    width = max(map(len, ids))
    padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in ids])
    mask = torch.arange(width) < torch.tensor([[len(row)] for row in ids])
    return RolloutBatch(
        problems=[CountdownProblem((3, 7, 9), 20, style="direct")],
        prompt_ids=torch.zeros(1, 1, dtype=torch.long),
        prompt_mask=torch.ones(1, 1, dtype=torch.bool),
        completion_ids=padded,
        mask=mask,
        old_log_probs=torch.zeros(mask.shape),
        temperature=1.0,
        pooled=None,
        texts=texts,
        token_spans=[token_spans(table, row) for row in ids],
        finish_reasons=["stop" for _ in texts],
        group_size=len(texts),
    )


def oracle() -> OracleReward:
    return OracleReward(outcome=VerifierReward(task=TASK), task=TASK, weight=0.1)


def traced(row: int) -> StepTrace:
    """The advantage of a token is its place in the completion."""
    rollouts = batch(WRITTEN)
    advantages = torch.arange(rollouts.mask.shape[1]).float().expand(rollouts.mask.shape)
    credit = oracle()(rollouts)
    assert credit.verdicts is not None
    return step_trace(TASK, rollouts, credit, advantages, credit.verdicts[row], row)


def test_a_step_has_its_text_the_credit_of_its_tokens_and_what_reward_and_oracle_say() -> None:
    tokens = [TOKENIZER.decode([i]) for i in TOKENIZER(WRITTEN[0], add_special_tokens=False)["input_ids"]]
    border = tokens.index(";")
    first, second = traced(0).steps
    assert (first.text, first.value, first.in_reach, first.legal) == ("9*3=27", 1.0, True, True)
    assert first.credit == pytest.approx(sum(range(border)) / border)
    rest = range(border + 1, len(tokens))
    assert second.text == "27-7=20"
    assert second.credit == pytest.approx(sum(rest) / len(rest))
    assert [(step.value, step.in_reach) for step in traced(1).steps] == [(0.0, False), (0.0, False)]
    assert [trace.correct for trace in (traced(0), traced(1))] == [True, False]


def test_a_step_that_the_rules_forbid_has_no_value() -> None:
    forbidden = traced(2).steps[0]
    assert (forbidden.legal, forbidden.value, forbidden.in_reach) == (False, None, None)


def test_the_first_correct_and_the_first_incorrect_completion_with_a_step_are_drawn() -> None:
    rollouts = batch(["no step", *WRITTEN[1:3], WRITTEN[0]])
    verdicts = oracle()(rollouts).verdicts
    assert verdicts is not None
    assert StepCredit(task=TASK, every=1, steps=5).rows(rollouts, verdicts) == [3, 1]


def step(text: str, credit: float, **changes: Any) -> TracedStep:
    return TracedStep(**{"text": text, "credit": credit, "value": 0.5, "in_reach": None, "legal": True} | changes)


def figure(*steps: TracedStep, reason: str = "", most: int = 24) -> Figure:
    trace = StepTrace(problem="p", correct=False, reason=reason, steps=steps)
    return draw([trace], step=1, most=most)


def test_bars_go_downwards_in_the_order_of_writing() -> None:
    left = figure(step("a", 2.0), step("b", -1.0)).axes[0]
    assert [label.get_text() for label in left.get_yticklabels()] == ["a", "b"]
    bars: Any = left.patches
    assert [bar.get_width() for bar in bars] == [2.0, -1.0]
    assert left.yaxis_inverted()


def test_marks_are_explained_where_they_occur() -> None:
    drawn = figure(step("a", 1.0, in_reach=True), step("b", 1.0, in_reach=False), step("c", 1.0, value=None))
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["target in reach", "target lost"]


def test_a_long_trace_is_cut_and_says_so() -> None:
    left = figure(*[step("a", 1.0)] * 9, most=4).axes[0]
    assert len(left.patches) == 4
    assert "first 4 of 9 steps" in left.get_title(loc="left")


def test_hostile_text_is_drawn_as_it_is(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    hostile = "$\\frac{1}{$ _^ \x00\x1b \u202e 漢 \udcff 🙂\n\n| $x$"
    figure(step(hostile, 1.0), step("", 0.0), reason=hostile).savefig(tmp_path / "a.png")
    assert not [str(warning.message) for warning in recwarn if "Glyph" in str(warning.message)]


@pytest.mark.parametrize(
    ("text", "seen"),
    [("a\n b\t", "a b"), ("\x1b[31m", "\\x1b[31m"), ("漢", "\\u6f22"), ("x" * 9, "x" * 7 + "…"), ("é−", "é\\u2212")],
)
def test_a_line_holds_what_every_font_can_write(text: str, seen: str) -> None:
    assert plain(text, 8) == seen


def test_a_run_draws_the_first_step_and_every_other_and_training_does_not_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures = Pictures()
    watched, alone = module(reward=oracle()), module(reward=oracle())
    watcher = StepCredit(task=TASK, every=2, steps=5)
    monkeypatch.setattr(watcher, "rows", lambda rollouts, verdicts: [0])  # a random policy writes no move
    fit(watched, 3, watcher, logger=pictures)
    fit(alone, 3)
    assert [(name, at) for name, at, _ in pictures.figures] == [("train/step_credit", 1), ("train/step_credit", 2)]
    assert torch.equal(weights(watched), weights(alone))


def test_a_reward_that_values_no_steps_is_left_out() -> None:
    pictures = Pictures()
    fit(module(), 1, StepCredit(task=TASK, every=1, steps=5), logger=pictures)
    assert not pictures.figures


@pytest.mark.parametrize("name", ["every", "steps"])
def test_settings_are_checked(name: str) -> None:
    settings: dict[str, Any] = {"task": TASK, "every": 1, "steps": 1}
    with pytest.raises(ValueError, match=f"callbacks.step_credit.{name} must be at least 1, got 0"):
        StepCredit(**settings | {name: 0})
