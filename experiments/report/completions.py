"""What the trained policies wrote: of each arm's newest run a few completions, accepted and not, with verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from experiments.arms import Arm
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, joined, section, table
from experiments.track import RunRecord

TABLES = (("evaluate", "test/completions"), ("grpo", "val/completions"))
"""Where they are looked for: stage and table."""
MOST_ARMS, MOST = 12, 4
LONGEST = 600
"""Characters of a cell."""
SHOWN = ("prompt", "completion", "status", "reason", "samples_correct")
HEADINGS = {"status": "verdict", "samples_correct": "samples"}


def completions(found: Gathered) -> Html:
    """The section: the same problems for every arm, as far as their runs saw the same."""
    parts = [_of_arm(found, arm) for arm in found.arms[:MOST_ARMS]]
    about = (
        f"Greedy completions of the newest run of each arm: the first {MOST // 2} that the verifier accepted and the "
        f"first {MOST // 2} that it did not, each cut after {LONGEST} characters."
    )
    return section("Completions", *([*parts, element("p", about, class_="note")] if any(parts) else []))


def _of_arm(found: Gathered, arm: Arm) -> Html:
    stages = found.newest_stages(arm)
    for stage, name in TABLES:
        rows = _rows(found, stages.get(stage), name)
        if rows:
            head = [*SHOWN[:-1], *sorted({key for row in rows for key in row if _is_part(key)})]
            head = [key for key in head if any(key in row for row in rows)]
            body = [[_cell(key, row.get(key, "")) for key in head] for row in rows]
            headings = [HEADINGS.get(key, key) for key in head]
            return joined(
                [element("h3", arm.label), table(headings, body, left=range(len(headings)), class_="wrapped")]
            )
    return Html("")


def _is_part(key: str) -> bool:
    """Whether a column tells how the completion was judged beside its verdict."""
    return key.startswith("reward") or key == SHOWN[-1]


def _rows(found: Gathered, stage: RunRecord | None, name: str) -> list[Mapping[str, Any]]:
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
    text = str(value).strip()
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST} more characters)"
    if key == "status":
        return element("span", cut, class_="ok" if value == "ok" else "bad")
    return element("code", cut) if key in ("prompt", "completion") else cut
