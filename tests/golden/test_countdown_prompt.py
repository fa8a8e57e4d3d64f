"""LongProc's prompt, with its two worked examples searched by us, hashed as recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT
from contrastive_reasoning.tasks.countdown.problem import LONGPROC_EXAMPLES, fill_template, worked_examples


@pytest.fixture(scope="module")
def meta(golden_file: Callable[[str], Path]) -> dict[str, Any]:
    return json.loads(golden_file("countdown_meta.json").read_text(encoding="utf-8"))


def test_limit_and_examples(meta: dict[str, Any]) -> None:
    assert meta["max_intermediate_exclusive"] == MAX_RESULT
    examples = [(tuple(example["nums"]), example["target"]) for example in meta["icl_demo_problems"]]
    assert examples == list(LONGPROC_EXAMPLES)


@pytest.mark.golden_rows("countdown_traces.jsonl")
def test_prompt_is_longprocs_byte_for_byte(golden_row: dict[str, Any], meta: dict[str, Any]) -> None:
    """The recorded template holds the examples written out: taking ours out of it must leave the place for them."""
    examples = worked_examples(LONGPROC_EXAMPLES, "longproc")
    assert meta["prompt_template"].count(examples) == 1
    template = meta["prompt_template"].replace(examples, "{demonstration}")
    prompt = fill_template(template, golden_row["nums"], golden_row["target"])
    assert len(prompt) == golden_row["prompt_chars"]
    assert hashlib.sha256(prompt.encode()).hexdigest() == golden_row["prompt_sha256"]
