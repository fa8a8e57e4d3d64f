"""Written searches are LongProc's byte for byte."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.longproc import longproc_scores
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.trace import search_trace
from contrastive_reasoning.tasks.countdown.verifier import verify

pytestmark = pytest.mark.golden_rows("countdown_traces.jsonl")


def test_search_is_longprocs_byte_for_byte(golden_row: dict[str, Any]) -> None:
    trace = search_trace(golden_row["nums"], golden_row["target"], style="longproc")
    assert trace.text == golden_row["demonstration"]
    assert hashlib.sha256(trace.text.encode()).hexdigest() == golden_row["demonstration_sha256"]
    assert list(trace.solution) == golden_row["solution"]
    assert golden_row["solution_block"] in trace.text


def test_recorded_search_is_judged_right_and_its_moves_legal(golden_row: dict[str, Any]) -> None:
    problem = Problem(
        id=golden_row["id"],
        prompt="",
        answer=golden_row["solution_text"],
        fields={"numbers": tuple(golden_row["nums"]), "target": golden_row["target"]},
    )
    text = golden_row["demonstration"]
    assert verify(problem, text).correct
    assert longproc_scores(problem, text) == {"accuracy": 1.0, "partial_accuracy": 1.0, "extraction_rate": 1.0}
    steps = parse_steps(problem, text)
    assert all(step.legal for step in steps)
    assert len(steps) == text.count("Current number set:") + text.count(" Evaluate ")
    assert steps[-1].state == (golden_row["target"],)
