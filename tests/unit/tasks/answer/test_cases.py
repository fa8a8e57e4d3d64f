"""Answers modelled on public bug reports, each with its correct verdict (``tests/cases/answers*.jsonl``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.answer import check_golds, verify_answer, verify_choice
from contrastive_reasoning.tasks.answer.golds import gold_text
from contrastive_reasoning.tasks.base import Verdict

FOLDER = Path(__file__).parents[3] / "cases"


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


CASES = read("answers.jsonl")
REPORTED = [case for case in CASES if isinstance(case["input"], dict) and "gold" in case["input"]]
ADDITIONAL = [{"input": case, "expected": "right" if case["right"] else "wrong"} for case in read("answers_more.jsonl")]


def verdict_on(case: dict[str, Any]) -> Verdict:
    gold, completion = case["input"]["gold"], case["input"]["completion"]
    judge = case.get("judge", "letter" if case.get("kind") == "multiple choice" else "answer")
    if judge in ("answer", "story"):
        return verify_answer(gold, completion, case["input"].get("question"))
    return verify_choice(gold, completion, boxed_only=judge.startswith("boxed"))


def name_of(case: dict[str, Any]) -> str:
    return case.get("id") or f"{case['input']['gold']}<-{case['input']['completion']}"


@pytest.mark.parametrize("case", [*REPORTED, *ADDITIONAL, *read("answers_third.jsonl")], ids=name_of)
def test_verdict_on_reported_case(case: dict[str, Any]) -> None:
    verdict = verdict_on(case)
    if case["expected"] == "right, or the gold is listed by check_golds":
        gold = case["input"]["gold"]
        assert verdict.correct or check_golds([gold])
        assert not check_golds([gold], other_spellings=False)
    else:
        assert verdict.correct == (case["expected"] == "right"), verdict


def test_gold_of_two_boxes_and_of_a_json_list() -> None:
    (boxes,) = [case for case in CASES if case["kind"] == "MATH solution with two boxes"]
    assert gold_text(boxes["input"]) == boxes["expected"]
    (items,) = [case for case in CASES if case["expected"] == "refused or read as 2"]
    assert verify_answer(items["input"], r"\boxed{2}").correct
    assert not verify_answer(items["input"], r"\boxed{3}").correct
