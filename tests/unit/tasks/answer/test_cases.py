"""Answers modelled on public bug reports, each with its correct verdict (``tests/cases/answers.jsonl``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.answer import check_golds, verify_answer, verify_choice
from contrastive_reasoning.tasks.answer.golds import gold_text

FOLDER = Path(__file__).parents[3] / "cases"


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


CASES = read("answers.jsonl")
PAIRS = [case for case in CASES if isinstance(case["input"], dict) and "gold" in case["input"]]


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case["id"])
def test_verdict_on_reported_case(case: dict[str, Any]) -> None:
    gold, completion = case["input"]["gold"], case["input"]["completion"]
    if case["kind"] == "multiple choice":
        verdict = verify_choice(gold, completion)
    else:
        verdict = verify_answer(gold, completion, case["input"].get("question"))
    if case["expected"] == "right, or the gold is listed by check_golds":
        assert verdict.correct or check_golds([gold])
        assert not check_golds([gold], other_spellings=False)
    else:
        assert verdict.correct == (case["expected"] == "right"), verdict


@pytest.mark.parametrize("case", read("answers_more.jsonl"), ids=lambda case: f"{case['gold']}<-{case['completion']}")
def test_verdict_on_additional_case(case: dict[str, Any]) -> None:
    verdict = verify_answer(case["gold"], case["completion"], case.get("question"))
    assert verdict.correct == case["right"], verdict


@pytest.mark.parametrize("case", read("answers_third.jsonl"), ids=lambda case: case["id"])
def test_verdict_on_third_set_of_cases(case: dict[str, Any]) -> None:
    given = case["input"]
    if case["judge"] in ("answer", "story"):
        verdict = verify_answer(given["gold"], given["completion"], given.get("question"))
    else:
        verdict = verify_choice(given["gold"], given["completion"], boxed_only=case["judge"].startswith("boxed"))
    assert verdict.correct == (case["expected"] == "right"), verdict


def test_gold_text_of_solution_with_two_boxes() -> None:
    (case,) = [case for case in CASES if case["kind"] == "MATH solution with two boxes"]
    assert gold_text(case["input"]) == case["expected"]


def test_gold_written_as_json_list_is_read_as_its_item() -> None:
    (case,) = [case for case in CASES if case["expected"] == "refused or read as 2"]
    assert verify_answer(case["input"], r"\boxed{2}").correct
    assert not verify_answer(case["input"], r"\boxed{3}").correct
