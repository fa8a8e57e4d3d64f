"""Chat rows: one user message, the gold answer in a nested column."""

from __future__ import annotations

from typing import Any

import pytest

from contrastive_reasoning.tasks.formats import BadRow, ChatMessages, MissingColumn

FORMAT = ChatMessages(messages="prompt", answer="reward_model.ground_truth", instruction="Box it.")


def row(content: Any, gold: Any = "142.0", role: str = "user") -> dict[str, Any]:
    return {"prompt": [{"role": role, "content": content}], "reward_model": {"ground_truth": gold, "style": "rule"}}


def test_the_message_is_the_prompt_as_it_stands() -> None:
    problem = FORMAT(row("What is m+n?\nBox it."), id="amc/0")
    assert (problem.prompt, problem.answer) == ("What is m+n?\nBox it.", "142.0")
    assert FORMAT(row("What is m+n?"), id="amc/0").prompt == "What is m+n?\nBox it."


def test_a_whole_solution_is_cut_down_to_its_last_box() -> None:
    assert (
        FORMAT(row("Find a+b.", r"First $\boxed{1}$. So $a+b=\boxed{\frac{0}{1}}$."), id="0").answer == r"\frac{0}{1}"
    )


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row("x", role="system"), "must be one user's, got system"),
        (row("x") | {"prompt": []}, "got none"),
        (row("x") | {"prompt": "x"}, "no list of"),
        (row("  "), "message is empty"),
        (row("x", gold=None), "reward_model.ground_truth is empty"),
        (row("x", gold=r"so \boxed{}"), "no answer in the solution: empty box"),
    ],
)
def test_what_cannot_be_posed(bad: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        FORMAT(bad, id="0")


def test_a_missing_nested_column_is_named() -> None:
    with pytest.raises(MissingColumn, match=r"no column reward_model.ground_truth; there are prompt, reward_model"):
        FORMAT(row("x") | {"reward_model": {"style": "rule"}}, id="0")
