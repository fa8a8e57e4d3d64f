"""From results to Markdown: every number arrives, in the table of its workload."""

from __future__ import annotations

import json
from dataclasses import asdict

from benchmarks.measures import Result, faster
from benchmarks.page import Setting, page

RESULTS = [
    faster("generation", "short prompts", "TRL 1.0", ours=[0.5, 0.25], theirs=[1.0, 1.0]),
    faster("update", "short prompts", "TRL 1.0", ours=[2.0, 2.0], theirs=[1.0, 3.0]),
    faster("update", "LongProc prompts", "TRL 1.0", ours=[12.0], theirs=[30.0]),
]
SETTING = Setting(
    cores=2,
    date="2026-01-02",
    repeats=2,
    versions={"torch": "2.13.0", "threads": "1", "trl": "1.0"},
    sizes={"short prompts": "8 prompts of 32 tokens"},
    notes=["vLLM was not measured: no GPU."],
)


def test_every_result_is_a_row_under_its_workload() -> None:
    text = page(RESULTS, SETTING)
    short, long = text.index("### short prompts"), text.index("### LongProc prompts")
    assert short < text.index("| `generation` | TRL 1.0 | **3.00** | 2.00 – 4.00 | 375 ms | 1.0 s |") < long
    assert short < text.index("| `update` | TRL 1.0 | **1.00** | 0.50 – 1.50 | 2.0 s | 2.0 s |") < long
    assert long < text.index("| `update` | TRL 1.0 | **2.50** | 2.50 – 2.50 | 12.0 s | 30.0 s |")
    assert sum(line.startswith("| `") for line in text.splitlines()) == len(RESULTS)


def test_the_page_says_how_it_was_measured() -> None:
    text = page(RESULTS, SETTING)
    for fact in ("2026-01-02; 2 cores, threads of an arm: 1", "torch 2.13.0, trl 1.0", "2 repeats"):
        assert fact in text
    assert "short prompts: 8 prompts of 32 tokens." in text
    assert "vLLM was not measured: no GPU." in text


def test_the_page_is_the_same_from_the_json() -> None:
    read = [Result(**entry) for entry in json.loads(json.dumps([asdict(result) for result in RESULTS]))]
    assert page(read, SETTING) == page(RESULTS, SETTING)
