"""The verifier against an independent strict verdict, LongProc's scores against the recorded ones."""

from __future__ import annotations

from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.longproc import longproc_scores
from contrastive_reasoning.tasks.countdown.trace import search_trace
from contrastive_reasoning.tasks.countdown.verifier import verify

pytestmark = pytest.mark.golden_rows("countdown_verifier.jsonl")

SCORES = ("accuracy", "partial_accuracy", "extraction_rate")
BREAKS_RULES = {
    "negative_intermediate",
    "intermediate_over_2000",
    "intermediate_exactly_2000",
    "underscore_digits",
}
"""Kinds that the reference lets pass by accident: ours agrees with the strict verdict instead."""


def problem_of(row: dict[str, Any]) -> Problem:
    return Problem(id=row["id"], prompt="", answer="", fields={"numbers": tuple(row["nums"]), "target": row["target"]})


def test_verdict(golden_row: dict[str, Any]) -> None:
    verdict = verify(problem_of(golden_row), golden_row["completion"])
    assert verdict.correct == (golden_row["safe_accuracy"] == 1), verdict
    assert bool(verdict.reason) != verdict.correct


def test_longproc_scores(golden_row: dict[str, Any]) -> None:
    scores = longproc_scores(problem_of(golden_row), golden_row["completion"])
    if golden_row["raises"]:
        assert scores == dict.fromkeys(SCORES, 0.0)
    elif golden_row["kind"] in BREAKS_RULES:
        assert scores["accuracy"] == golden_row["safe_accuracy"]
        assert scores["extraction_rate"] == golden_row["extraction_rate"]
    else:
        assert scores == pytest.approx({name: golden_row[name] for name in SCORES}, abs=1e-12, rel=0)


def test_our_own_search_is_the_reference_it_compares_with(golden_row: dict[str, Any]) -> None:
    assert search_trace(golden_row["nums"], golden_row["target"]).text == golden_row["reference_output"]
