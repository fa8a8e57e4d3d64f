"""Results as tables, and as the section of a Markdown page. The rest of a page is written by hand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from torch.backends.cpu import get_cpu_capability as cpu_capability

from benchmarks.measures import PEAK_MEMORY, Findings, Result
from experiments.table import Table

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
"""A page has both, each on a line of its own. A run replaces the text between them."""


def with_results(page: Path, results: str) -> str:
    """Returns the text of the page with these results between its marks. Raises ValueError if it lacks a mark."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} lacks the line {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{results.strip()}\n\n{END}{after}"


def tables(results: Sequence[Result]) -> list[Table]:
    """Returns one table for each workload, in the order of the results."""
    head = ("measure", "against", "ratio", "from – to", "ours", "peer")
    return [
        Table(title=title, head=head, rows=[_row(one) for one in results if one.workload == title], left=(0, 1))
        for title in dict.fromkeys(one.workload for one in results)
    ]


def results_section(found: Findings, *, repeats: int) -> str:
    """Returns the conditions of a run on a CPU and its tables, without paths and host names."""
    libraries = dict(found.versions)
    threads, dtype = (libraries.pop(name, "unknown") for name in ("threads", "dtype"))
    conditions = [
        f"{datetime.now(UTC).date()}; {os.cpu_count() or 1} cores ({cpu_capability()}), no GPU; "
        f"threads of an arm: {threads}; forward passes in {dtype}.",
        f"{', '.join(f'{name} {version}' for name, version in sorted(libraries.items())) or 'versions unknown'}.",
        f"{repeats} repeats of every measure.",
        *(f"{title}: {size}." for title, size in found.sizes.items()),
        *found.notes,
    ]
    text = "\n".join(["## This run\n", *(f"- {line}" for line in conditions), "\n## Results\n"])
    for table in tables(found.results):
        rows = [(f"`{measure}`", peer, f"**{ratio}**", *rest) for measure, peer, ratio, *rest in table.rows]
        text += f"\n### {table.title}\n\n" + Table(head=table.head, rows=rows, left=table.left).as_markdown()
    return text


def _row(result: Result) -> tuple[str, ...]:
    spread = f"{result.ratio_min:.2f} – {result.ratio_max:.2f}"
    both = (_with_unit(value, result.measure) for value in (result.ours, result.theirs))
    return (result.measure, result.peer, f"{result.ratio:.2f}", spread, *both)


def _with_unit(value: float, measure: str) -> str:
    if measure == PEAK_MEMORY:
        return f"{value:.2f} GiB"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
