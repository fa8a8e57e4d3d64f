"""Tables of validation and training completions, and the page of advantages per token."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from callbacks.completions import Completions, Trace, TrainingCompletions, colour, credit_page, mix_rows
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.tasks.countdown import CountdownProblem
from experiments.run_folder.logger import RunFolderLogger
from lightning_modules.grpo import GRPO
from tests.unit.callbacks.kit import assert_only_watches
from tests.unit.lightning_modules.grpo_kit import TASK, TOKENIZER, Digits, Recorder, fit, module
from tests.unit.lightning_modules.rewards_kit import clipo

HOSTILE = "<script>alert(1)</script> \" onmouseover='x' &lt; </pre></span> {{ 7 * 7 }}"


def validate(callback: Completions, trainer: Any, batches: list[list[str]], step: int) -> None:
    """Run a validation with one problem per text. Problems are solved by 5 + 3, 5 + 4 …

    Groups have two completions, of which the callback shows the first.
    """
    module = SimpleNamespace(rollout_step=step)
    callback.on_validation_epoch_start(trainer, module)
    for number, texts in enumerate(batches):
        problems = [CountdownProblem((5, 3 + i), 8 + i, style="direct") for i in range(len(texts))]
        rollouts = SimpleNamespace(texts=[text for one in texts for text in (one, "x")], group_size=2)
        for setting in ("training_problems", "main"):  # only the held-out problems ("main") are shown
            batch = SimpleNamespace(problems=problems, rollouts=rollouts, setting=setting)
            callback.on_validation_batch_end(trainer, module, None, batch, number)
    callback.on_validation_epoch_end(trainer, module)


def test_completions_writes_first_validation_problems_with_verdicts(tmp_path: Path) -> None:
    trainer = SimpleNamespace(loggers=[RunFolderLogger(folder=tmp_path), object()], sanity_checking=False)
    callback = Completions(task=TASK, problems=3)
    for step in (0, 20):
        validate(callback, trainer, [["5+3=8", "\udcc3"], ["", "never shown"]], step)
        rows = json.loads((tmp_path / "tables" / "val" / "completions" / f"{step}.json").read_text())
        assert [row["completion"] for row in rows] == ["5+3=8", "\ufffd", ""]
        assert rows[0]["status"] == "ok"
        assert all(row["status"] != "ok" and row["reason"] for row in rows[1:])


def test_completions_writes_nothing_in_sanity_check(tmp_path: Path) -> None:
    trainer = SimpleNamespace(loggers=[RunFolderLogger(folder=tmp_path)], sanity_checking=True)
    validate(Completions(task=TASK, problems=3), trainer, [["5+3=8"]], step=0)
    assert not (tmp_path / "tables").exists()


class DistinctAdvantages:
    """Gives each token of a batch a different advantage, so that an advantage at the wrong token is detected."""

    def __call__(self, credit: Credit, mask: Tensor, group_size: int) -> Tensor:
        numbers = torch.arange(1.0, mask.numel() + 1).view(mask.shape)
        return torch.where(numbers.long() % 2 == 0, numbers, -numbers) * mask


class Judged:
    """The ``Digits`` reward, where every third completion counts as correct."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = Digits()(rollouts)
        verdicts = [Verdict(status="wrong" if row % 3 else "ok", reason="<i>") for row in range(len(rollouts))]
        return Credit(outcome=2 * credit.outcome, parts=credit.parts, verdicts=verdicts)


def rollouts_seen(trained: GRPO, folder: Path) -> RolloutBatch:
    """The rollouts of one step that is watched."""
    seen = Recorder(lambda _, batch: batch.rollouts)
    fit(trained, 1, watcher(), seen, logger=RunFolderLogger(folder=folder))
    return seen.seen[0]


def watcher(**changes: Any) -> TrainingCompletions:
    return TrainingCompletions(**{"task": TASK, "rows": 4, "every": 2, "longest": 100} | changes)


def table(folder: Path, step: int) -> list[dict[str, Any]]:
    return json.loads((folder / "tables" / "train" / "completions" / f"{step}.json").read_text())


ROWS = (0, 1, 6, 7)
"""Two of the correct rows 0, 3, 6, 9, and two of the others."""


def test_credit_page_labels_each_token_with_its_advantage(tmp_path: Path) -> None:
    rollouts = rollouts_seen(module(reward=Judged(), advantage=DistinctAdvantages()), tmp_path)
    page = Page((tmp_path / "pages" / "train" / "credit" / "1.html").read_text())
    expected = []
    used = DistinctAdvantages()(Credit(outcome=torch.zeros(12), parts={}), rollouts.mask, 4)
    for row in ROWS:
        for token, advantage in zip(rollouts.completion_ids[row], used[row], strict=True):
            if advantage:
                expected.append((TOKENIZER.decode([int(token)]), f"{advantage:+.3g}".replace("-", "−")))
    assert len(page.tokens) == len(expected) > 10
    assert [title for _, _, title in page.tokens] == [advantage for _, advantage in expected]
    shown = [(text, decoded) for (text, *_), (decoded, _) in zip(page.tokens, expected, strict=True) if "⟨" not in text]
    assert len(shown) > 5
    assert all(text == decoded for text, decoded in shown)


def test_table_row_has_verdict_reward_parts_and_advantage(tmp_path: Path) -> None:
    rollouts = rollouts_seen(module(reward=Judged()), tmp_path)
    credit = Judged()(rollouts)
    for row, at in zip(table(tmp_path, 1), ROWS, strict=True):
        group, digits = credit.outcome.view(-1, 4)[at // 4], float(credit.parts["digits"][at])
        relative = float((credit.outcome[at] - group.mean()) / (group.std() + 1e-6))
        assert row == {
            **row,
            "completion": readable(rollouts.texts[at]),
            "prompt": rollouts.problem_of(at).prompt,
            "status": "wrong" if at % 3 else "ok",
            "reason": "<i>",
            "reward": pytest.approx(2 * digits),
            "reward/digits": pytest.approx(digits),
            "advantage": pytest.approx(relative, abs=1e-4),
            "tokens": int(rollouts.mask[at].sum()),
        }


def test_training_completions_writes_steps_1_2_4_and_leaves_weights_unchanged(tmp_path: Path) -> None:
    assert_only_watches(watcher(), 4, logger=RunFolderLogger(folder=tmp_path))
    for folder, kind in (("tables/train/completions", "json"), ("pages/train/credit", "html")):
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == [f"{k}.{kind}" for k in (1, 2, 4)]


def test_reward_warmup_has_no_advantages_and_no_credit_page(tmp_path: Path) -> None:
    reward = clipo(warmup_steps=2)
    fit(module(reward=reward), 2, watcher(), logger=RunFolderLogger(folder=tmp_path))
    assert [row["advantage"] for row in table(tmp_path, 2)] == [None] * 4
    assert None not in [row["advantage"] for row in table(tmp_path, 4)]
    assert sorted(path.name for path in (tmp_path / "pages" / "train" / "credit").iterdir()) == ["4.html"]


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
def test_mix_rows_selects_correct_and_incorrect_rows(correct: list[bool], count: int, rows: list[int]) -> None:
    assert mix_rows(correct, count) == rows


class Page(HTMLParser):
    """Parses a page into its tags and the text, colour and title of each token."""

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


def trace(*tokens: tuple[str, float], text: str = "wrong") -> Trace:
    return Trace(heading=text, numbers={"reward": 1.0}, prompt=text, tokens=tokens)


def test_credit_page_uses_one_colour_scale_for_all_completions() -> None:
    text = credit_page([trace(("21", -2.0), ("+", 0.0)), trace((" 16", 1.0))], step=3, longest=9)
    assert Page(text).tokens == [["21", "#e49659", "−2"], ["+", "#ffffff", "0"], [" 16", "#acd1e6", "+1"]]
    assert Page(text).tokens[2][1] == colour(1.0, 2.0)
    assert all(f">{number}</b>" in text for number in ("−2", "−1", "0", "+1", "+2"))
    assert "All advantages are 0" in credit_page([trace(("a", 0.0))], step=1, longest=9)


def test_credit_page_escapes_prompts_and_completions() -> None:
    hostile = Page(credit_page([trace((HOSTILE, 1.0), text=HOSTILE)], step=1, longest=9))
    tame = Page(credit_page([trace(("a", 1.0))], step=1, longest=9))
    assert hostile.tags == tame.tags
    assert hostile.tokens[0][0] == HOSTILE


def test_credit_page_truncates_long_completion_and_counts_the_rest() -> None:
    text = credit_page([trace(*[("a", 1.0)] * 12, text="p" * 100)], step=1, longest=10)
    assert len(Page(text).tokens) == 10
    assert "2 more tokens" in text
    assert "p" * 40 + "<" in text
