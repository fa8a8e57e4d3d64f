"""Writes the outcomes as a Markdown page without paths and host names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_check.parts import PARTS
from benchmarks.gpu_check.results import Outcome

HEAD = """\
# What works on a GPU

`make gpu-check` runs everything that needs a GPU, one part at a time, and writes this page. It takes at most 30
minutes, including downloads. Without a GPU it prints an error and exits with code 2.

```sh
make gpu-check
make gpu-check name=smollm2-135m-q4                            # this model instead of the hub's
make gpu-check over='parts=experiment,roofline minutes=60'     # some parts, more time for each
```

If a part fails or reaches its time limit, this page gives the reason, and the next part still runs. At the end the
command reports an error. The output of each part is in `outputs/gpu_check/`. With `over='device=cpu'` the same parts
run on the CPU, and this page does not change.

"""
ON_CPU = "The parts ran on the CPU. Their figures say nothing about a GPU."


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine and software of a check."""

    date: str
    commit: str
    device: str
    environment: Mapping[str, Any]
    """The result of ``experiments.run_folder.record.environment``."""
    processor: str
    versions: Mapping[str, str]


def page(machine: Machine, outcomes: Mapping[str, Outcome]) -> str:
    parts = table(
        ("part", "what runs", "at most"), [(f"`{name}`", p.what, f"{p.minutes:g} min") for name, p in PARTS.items()]
    )
    lines = [HEAD.rstrip(), "", *parts, "", *_machine(machine), "", "## Parts", ""]
    rows = [(f"`{name}`", one.state, f"{one.seconds:.0f} s", one.not_run) for name, one in outcomes.items()]
    lines += [*table(("part", "outcome", "took", "why it was not run"), rows), ""]
    failures = [(f"`{name}`", *failure) for name, one in outcomes.items() for failure in one.failures]
    lines += ["## What failed", "", *(table(("part", "what", "why"), failures) if failures else ["Nothing."]), ""]
    figures = [(f"`{name}`", *figure) for name, one in outcomes.items() for figure in one.figures]
    lines += ["## Figures", "", *(table(("part", "what", "figure"), figures) if figures else ["None."]), ""]
    notes = [f"- `{name}`: {note}" for name, one in outcomes.items() for note in one.notes]
    lines += [
        "Figures of steps are medians. A ratio of the benchmark is the peer's seconds (or memory) over ours, with its "
        "range; that of a roofline is the share of the rate that the machine allows.",
        "",
    ]
    lines += [*notes, ""] if notes else []
    return "\n".join(lines)


def _machine(machine: Machine) -> list[str]:
    found = machine.environment
    devices = ", ".join(found["accelerators"]) or "no GPU"
    rows = [
        ("date, commit", f"{machine.date}, {machine.commit or 'unknown'}"),
        ("devices", devices),
        ("processor", f"{machine.processor}, {found['processors']} cores, {found['memory_megabytes']:,} MB"),
        ("system", f"{found['system']}, {found['python']}, CUDA {found['cuda'] or 'none'}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())),
    ]
    lines = ["## This machine", "", *table(("", ""), rows)]
    return lines if machine.device != "cpu" else [*lines, "", ON_CPU]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table. Line breaks in cells become spaces, and bars are escaped."""
    return [_row(head), "|" + "---|" * len(head), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
