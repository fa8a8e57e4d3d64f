"""What policies wrote: of each arm's newest run a few completions, accepted and not; of training with rewards, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from experiments.analysis.arms import Arm
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, joined, section, table
from experiments.tracking.tracked_run import TrackedRun

HELD_OUT = (("evaluate", "test/completions"), ("grpo", "val/completions"))
"""Where those of held-out problems are looked for: stage and table; the first there is counts."""
TRAINING = (("grpo", "train/completions"),)
MOST_ARMS, MOST = 12, 4
LONGEST = 600
"""Characters of a cell."""
SHOWN = ("prompt", "completion", "status", "reason")
FIGURES = ("samples_correct", "reward", "reward/", "advantage")
"""Columns that say more than the verdict; every part of a reward has one behind ``reward/``."""
HEADINGS = {"status": "verdict", "samples_correct": "samples"}


def completions(found: Gathered) -> Html:
    """The section: the same problems for every arm, as far as their runs saw the same."""
    parts = [_of_arm(found, arm) for arm in found.arms[:MOST_ARMS]]
    about = (
        f"Of the newest run of each arm: greedy completions of held-out problems, then some of those it last learned "
        f"from, with the parts of their rewards and the mean advantage of their tokens. The first {MOST // 2} that the "
        f"verifier accepted and the first {MOST // 2} that it did not, each cut after {LONGEST} characters."
    )
    return section("Completions", *([*parts, element("p", about, class_="note")] if any(parts) else []))


def _of_arm(found: Gathered, arm: Arm) -> Html:
    stages = found.newest_stages(arm)
    tables = [
        _table(arm.label if heading is None else f"{arm.label}: {heading}", rows)
        for heading, places in ((None, HELD_OUT), ("what it last learned from", TRAINING))
        if (rows := _first(found, stages, places))
    ]
    return joined(tables)


def _table(heading: str, rows: Sequence[Mapping[str, Any]]) -> Html:
    head = [key for key in SHOWN if any(key in row for row in rows)] + figures_of(rows)
    body = [[_cell(key, row.get(key, "")) for key in head] for row in rows]
    headings = [HEADINGS.get(key, key) for key in head]
    return joined([element("h3", heading), table(headings, body, left=range(len(headings)), class_="wrapped")])


def figures_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that say more of a completion than its verdict, in the order of ``FIGURES``, parts by name."""
    keys = {key for row in rows for key, value in row.items() if value is not None}
    parts = sorted(key for key in keys if key.startswith("reward/"))
    return [key for name in FIGURES for key in (parts if name == "reward/" else [name] if name in keys else [])]


def _first(
    found: Gathered, stages: Mapping[str, TrackedRun], places: Sequence[tuple[str, str]]
) -> list[Mapping[str, Any]]:
    """Some rows of the first table that there is."""
    return next((rows for stage, name in places if (rows := _rows(found, stages.get(stage), name))), [])


def _rows(found: Gathered, stage: TrackedRun | None, name: str) -> list[Mapping[str, Any]]:
    if stage is None or f"tables/{name}.json" not in found.tracker.artifacts.files(stage.run_id, "tables"):
        return []
    rows = found.tracker.table(stage.run_id, name)
    last = max((row.get("step", 0) for row in rows), default=0)
    return chosen([row for row in rows if row.get("step", 0) == last])


def chosen(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Accepted and refused ones in turn, the first of each; more of one kind where the other has too few."""
    accepted = [row for row in rows if row.get("status") == "ok"]
    refused = [row for row in rows if row.get("status") != "ok"]
    return [row for row in chain(*zip_longest(accepted[:MOST], refused[:MOST])) if row is not None][:MOST]


def _cell(key: str, value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value).strip()
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST} more characters)"
    if key == "status":
        return element("span", cut, class_="ok" if value == "ok" else "bad")
    return element("code", cut) if key in ("prompt", "completion") else cut
