from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from contrastive_reasoning.tasks.answer import extract_answer, verify_answer
from contrastive_reasoning.tasks.answer.extract import MAX_ANSWER, THOUGHT_ENDS, extract
from contrastive_reasoning.tasks.answer.golds import gold_text
from tests.pace import assert_bounded_work


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"so $\boxed{7}$.", "7"),
        (r"\boxed{3}, no: \boxed{ \frac{1}{2} }", r"\frac{1}{2}"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        ("\\boxed\n{7}", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"The answer is $\boxed 3, 5, 7$ as we saw", "3, 5, 7"),
        (r"$\boxed \frac{3}{5}$", r"\frac{3}{5}"),
        (r"$\boxed \$23$", r"\$23"),
        (r"\boxed{\boxed{7}}", r"\boxed{7}"),
        (r"\boxed{7 \text{ or } \boxed{8}}", r"7 \text{ or } \boxed{8}"),
        (r"\boxed{3 and so on, \boxed{5}", "5"),
        (r"\boxedness{8} \boxed{7}", "7"),
        (r"The roots are $\boxed{2}$ and $\boxed{3}$.", "2, 3"),
        (r"\(\boxed{2}\), \(\boxed{\frac12}\), or $\boxed{3}$", r"2, \frac12, 3"),
        (r"$n=\boxed{3}$ and $m=\boxed{6}$", "n=3, m=6"),
        (r"\boxed{x=3}, \boxed{9}", "x=3, 9"),
        (r"\boxed{2}, \boxed{3}, \boxed{2}", "2, 3, 2"),
        (r"\boxed{2} \text{ or } \boxed{-2}", "2, -2"),
        (r"\boxed{(1,2)};\quad\boxed{(3,4)}", "(1,2), (3,4)"),
        (r"\boxed{5}, \boxed{5}", "5"),
        (r"\boxed{4} \boxed{5}", "5"),
        (r"\boxed{4}, and so \boxed{5}", "5"),
        (r"\boxed{4}. \boxed{5}, \boxed{6}", "5, 6"),
        (r"\boxed{}, \boxed{6}", "6"),
        (r"\boxed{4}, \boxed{7 \text{ or } \boxed{8}}", r"4, 7 \text{ or } \boxed{8}"),
        (r"<think>\boxed{3}</think> \boxed{4}", "4"),
        (r"<think>\boxed{3}</think> hm </think> \boxed{4}", "4"),
        (r"<think>\boxed{3}", "3"),
        ("#### 1,234", "1,234"),
        ("Step 1\nAnswer: 8", "8"),
        ("**Answer:** 8", "8"),
        ("Step 1.\n\nTherefore the final answer is $40\\%$.\n", "$40\\%$."),
        ("The answer is 5. We checked it.", "5"),
        ("The answer is 3. No, the answer is 5", "5"),
    ],
)
def test_extract_answer_returns_answer_as_written(completion: str, answer: str) -> None:
    assert extract_answer(completion) == answer


MISSING = {
    "empty completion": ["", "<think>so</think>\n"],
    "no boxed answer": [
        "It is seven.",
        "The answer is 7.\nThat was hard.",
        "The answer is",
        r"<think>so it is $\boxed{7}$</think> The answer follows.",
        r"<think>\boxed{3}</think> \boxed{4} </think> hm",
    ],
    "empty box": [r"\boxed{}", r"\boxed{7}, in a \boxed{ }", r"\boxed{7}, \boxed{ }", r"\boxed"],
    "box not closed": [r"\boxed{7", r"\boxed{7\}", r"The answer is 7, $\boxed{7", r"\boxed{7} or \boxed{8"],
    f"answer longer than {MAX_ANSWER} characters": [
        rf"\boxed{{{'7' * (MAX_ANSWER + 1)}}}",
        f"Answer: {'7' * (MAX_ANSWER + 1)}",
    ],
}
"""Reason → completions."""


@pytest.mark.parametrize(
    ("completion", "reason"), [(text, reason) for reason, completions in MISSING.items() for text in completions]
)
def test_missing_answer_is_unparsed_with_reason(completion: str, reason: str) -> None:
    assert extract_answer(completion) is None
    verdict = verify_answer("7", completion)
    assert (verdict.status, verdict.reason) == ("unparsed", reason)


@pytest.mark.parametrize(
    "unit",
    ["\\boxed{", "\\boxed ", "\\boxedx", "{", "}", "\\", "answer is ", "</think>", "\\boxed{a}", "x", "\n", "7 "],
)
def test_answer_after_a_megabyte_of_text_is_found_with_bounded_work(unit: str) -> None:
    long = unit * (10**6 // len(unit))
    with assert_bounded_work():
        assert extract(long + " ").boxed == (r"\boxed" in unit and unit != "\\boxedx")
        assert verify_answer("7", f"{long}</think> $\\boxed{{7}}$").correct


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("7", "7"),
        ("We add.\n\\[ 3 + 4 = \\boxed{7}. \\]", "7"),
        (r"First $\boxed{1}$, hence $\boxed{\frac12}$", r"\frac12"),
        ("3 + 4 = 7\n#### 7", "7"),
        ("", ""),
    ],
)
def test_gold_text_extracts_answer_from_solution(gold: str, text: str) -> None:
    assert gold_text(gold) == text


def test_config_lists_the_same_thought_ends() -> None:
    config = yaml.safe_load((Path(__file__).parents[4] / "conf" / "config.yaml").read_text(encoding="utf-8"))
    assert tuple(config["thought_ends"]) == THOUGHT_ENDS
