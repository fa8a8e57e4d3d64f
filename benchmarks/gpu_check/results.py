"""The outcomes of parts: read from the files of their processes, and written as the section of a Markdown page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

from benchmarks.processes import shareable
from experiments.run_folder.reader import find_run_folders, read_metrics, stage_folders
from experiments.table import Table

SHOWN = {
    "train/throughput/tokens_per_second": "tokens a second",
    "train/throughput/step_seconds": "seconds a step",
    "train/throughput/rollout_seconds": "of these, rollouts",
    "train/throughput/update_seconds": "of these, the update",
    "train/throughput/peak_memory_megabytes": "peak memory of the trainer, MB",
    "train/rollout/log_prob_gap": "largest gap between log-probs of rollout and trainer",
}
"""Metric of a GRPO step → its name on the page, which shows medians over the steps."""

KINDS = ("failure", "error", "skipped")
"""Elements of a JUnit file for tests that did not pass."""
ON_CPU = "The parts ran on the CPU. Their figures say nothing about a GPU."


@dataclass(frozen=True, kw_only=True)
class Outcome:
    seconds: float = 0.0
    figures: tuple[tuple[str, str], ...] = ()
    """(what was measured, its value)."""
    failures: tuple[tuple[str, str], ...] = ()
    """(what failed, why)."""
    notes: tuple[str, ...] = ()
    not_run: str = ""
    """Why it was not run; empty if it was run."""

    @property
    def state(self) -> str:
        return "failed" if self.failures else "not run" if self.not_run else "works"


def of_tests(results: Path, reason: str | None) -> Outcome:
    """Reads pytest's JUnit file, which is missing if it was killed. ``reason``: why the process failed, or None."""
    cases = [*ElementTree.parse(results).iter("testcase")] if results.is_file() else []
    cases = [case for case in cases if case.get("name")]  # a test interrupted by the time limit has none
    kinds = {kind: [(case.get("name", ""), found) for case in cases for found in case.iter(kind)] for kind in KINDS}
    failures = [(name, message_of(found)) for kind in ("failure", "error") for name, found in kinds[kind]]
    if reason is not None:
        failures.append(("pytest", reason))
    passed = len(cases) - sum(map(len, kinds.values()))
    skipped = [message_of(found) for _, found in kinds["skipped"]]
    reasons = "; ".join(sorted(set(skipped)))
    if not passed and not failures:
        return Outcome(not_run=f"all {len(cases)} tests were skipped: {reasons}")
    notes = (f"Tests skipped: {len(skipped)} ({reasons}).",) if skipped else ()
    return Outcome(figures=(("tests passed", f"{passed} of {len(cases)}"),), failures=tuple(failures), notes=notes)


def message_of(found: ElementTree.Element) -> str:
    lines = [line.strip() for line in (found.get("message") or "").splitlines()]
    return shareable(next((line for line in lines if line), "no message"))


def of_run(outputs: Path, reason: str | None) -> Outcome:
    """Reads the metrics of an experiment, whose folder of outputs has one run."""
    steps: dict[str, list[float]] = {name: [] for name in SHOWN}
    stages = [found for run in find_run_folders(outputs) for found in stage_folders(run)]
    for metric in (metric for stage, place, _ in stages if stage == "grpo" for metric in read_metrics(place)):
        if metric.name in steps:
            steps[metric.name].append(metric.value)
    figures = [(SHOWN[name], f"{median(values):.4g}") for name, values in steps.items() if values]
    if figures:
        figures.insert(0, ("steps", str(max(map(len, steps.values())))))
    elif reason is None:
        reason = "no step of GRPO was logged"
    return Outcome(figures=tuple(figures), failures=because(reason, "experiment"))


def of_benchmark(output: Path, reason: str | None) -> Outcome:
    """Reads the file of the benchmark: ratios and notes on what was left out."""
    found = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {"results": [], "notes": []}
    figures = tuple(
        (
            f"{one['measure']}: {one['workload']}, against {one['peer']}",
            f"{one['ratio']:.2f} ({one['ratio_min']:.2f} – {one['ratio_max']:.2f})",
        )
        for one in found["results"]
    )
    if reason is None and not figures:
        reason = "no ratio was measured"
    notes = tuple(shareable(note) for note in found["notes"])
    return Outcome(figures=figures, notes=notes, failures=because(reason, "benchmark"))


def because(reason: str | None, what: str) -> tuple[tuple[str, str], ...]:
    return () if reason is None else ((what, reason),)


def outcomes_section(machine: Sequence[tuple[str, str]], outcomes: Mapping[str, Outcome], *, device: str) -> str:
    """Returns the section of the page: the machine's rows and all outcomes, without paths and host names."""
    each = [(f"`{name}`", outcome) for name, outcome in outcomes.items()]
    parts = [(name, one.state, f"{one.seconds:.0f} s", one.not_run) for name, one in each]
    failures = [(name, *failure) for name, one in each for failure in one.failures]
    figures = [(name, *figure) for name, one in each for figure in one.figures]
    return "\n".join(
        [
            *_titled("This machine", ("", ""), machine),
            *([ON_CPU, ""] if device == "cpu" else []),
            *_titled("Parts", ("part", "outcome", "took", "why it was not run"), parts),
            *_titled("What failed", ("part", "what", "why"), failures, without="Nothing."),
            *_titled("Figures", ("part", "what", "figure"), figures, without="None."),
            *(f"- {name}: {note}" for name, one in each for note in one.notes),
        ]
    )


def _titled(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, without: str = "") -> list[str]:
    """Returns the lines of a table with a heading; ``without`` replaces a table without rows."""
    table = Table(head=head, rows=rows, left=range(len(head))).as_markdown() if rows else f"{without}\n"
    return [f"## {title}\n", table]
