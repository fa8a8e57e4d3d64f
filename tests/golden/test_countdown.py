"""Countdown against recorded runs of LongProc, an independent strict verdict and an exhaustive search."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.game import MAX_RESULT
from contrastive_reasoning.tasks.countdown.longproc import longproc_scores
from contrastive_reasoning.tasks.countdown.oracle import reachable, reachable_targets
from contrastive_reasoning.tasks.countdown.problem import LONGPROC_EXAMPLES, fill_template, worked_examples
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.trace import search_trace
from contrastive_reasoning.tasks.countdown.verifier import verify

golden_rows = pytest.mark.golden_rows
SCORES = ("accuracy", "partial_accuracy", "extraction_rate")
BREAKS_RULES = {
    "negative_intermediate",
    "intermediate_over_2000",
    "intermediate_exactly_2000",
    "underscore_digits",
}
"""Kinds that the reference accepts by accident; ours agrees with the strict verdict instead."""


def problem_of(row: dict[str, Any]) -> Problem:
    return Problem(id=row["id"], prompt="", answer="", fields={"numbers": tuple(row["nums"]), "target": row["target"]})


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def meta(golden_file: Callable[[str], Path]) -> dict[str, Any]:
    return json.loads(golden_file("countdown_meta.json").read_text(encoding="utf-8"))


def test_result_limit_and_examples_match_longproc(meta: dict[str, Any]) -> None:
    assert meta["max_intermediate_exclusive"] == MAX_RESULT
    examples = [(tuple(example["nums"]), example["target"]) for example in meta["icl_demo_problems"]]
    assert examples == list(LONGPROC_EXAMPLES)


@golden_rows("countdown_traces.jsonl")
def test_prompt_matches_longproc_byte_for_byte(golden_row: dict[str, Any], meta: dict[str, Any]) -> None:
    """The recorded template contains the examples as text; they must be equal to ours, which are replaced."""
    examples = worked_examples(LONGPROC_EXAMPLES, "longproc")
    assert meta["prompt_template"].count(examples) == 1
    template = meta["prompt_template"].replace(examples, "{demonstration}")
    prompt = fill_template(template, golden_row["nums"], golden_row["target"], style="longproc")
    assert (len(prompt), sha256(prompt)) == (golden_row["prompt_chars"], golden_row["prompt_sha256"])


@golden_rows("countdown_traces.jsonl")
def test_search_trace_matches_longproc_and_is_correct_and_legal(golden_row: dict[str, Any]) -> None:
    trace = search_trace(golden_row["nums"], golden_row["target"], style="longproc")
    assert trace.text == golden_row["demonstration"]
    assert sha256(trace.text) == golden_row["demonstration_sha256"]
    assert list(trace.solution) == golden_row["solution"]
    assert golden_row["solution_block"] in trace.text
    problem = problem_of(golden_row)
    assert verify(problem, trace.text).correct
    assert longproc_scores(problem, trace.text) == dict.fromkeys(SCORES, 1.0)
    steps = parse_steps(problem, trace.text)
    assert all(step.legal for step in steps)
    assert len(steps) == trace.text.count("Current number set:") + trace.text.count(" Evaluate ")
    assert steps[-1].state == (golden_row["target"],)


@golden_rows("countdown_verifier.jsonl")
def test_verdict_and_scores_match_the_recorded_ones(golden_row: dict[str, Any]) -> None:
    problem = problem_of(golden_row)
    verdict = verify(problem, golden_row["completion"])
    assert verdict.correct == (golden_row["safe_accuracy"] == 1), verdict
    assert bool(verdict.reason) != verdict.correct
    scores = longproc_scores(problem, golden_row["completion"])
    if golden_row["raises"]:
        assert scores == dict.fromkeys(SCORES, 0.0)
    elif golden_row["kind"] in BREAKS_RULES:
        assert scores["accuracy"] == golden_row["safe_accuracy"]
        assert scores["extraction_rate"] == golden_row["extraction_rate"]
    else:
        assert scores == pytest.approx({name: golden_row[name] for name in SCORES}, abs=1e-12, rel=0)
    assert search_trace(golden_row["nums"], golden_row["target"]).text == golden_row["reference_output"]


@golden_rows("oracle.jsonl")
def test_reachable_matches_exhaustive_search(golden_row: dict[str, Any]) -> None:
    numbers, target = golden_row["nums"], golden_row["target"]
    assert reachable(numbers, target) == golden_row["reachable"] == (target in reachable_targets(numbers))
    assert len(reachable_targets(numbers)) == golden_row["n_distinct_final_values"]
