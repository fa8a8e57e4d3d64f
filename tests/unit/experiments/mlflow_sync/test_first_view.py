"""``first_view``: the table and charts of an experiment's page in MLflow, and their order."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from experiments.mlflow_sync import TrackedRun
from experiments.mlflow_sync.first_view import first_view

MEASURED = {
    "train/spent/tokens": 9.0,
    "train/reward/oracle": 0.2,
    "train/reward/verifier": 0.1,
    "test/verifier/accuracy": 0.4,
    "val/verifier/accuracy": 0.3,
    "start/verifier/accuracy": 0.1,
    "val/oracle/auroc_depth1": 0.9,
    "train/objective/ratio_max": 1.0,
}


def run(name: str, **tags: str) -> TrackedRun:
    tags = {**tags, "mlflow.runName": name}
    return TrackedRun(
        run_id=name, experiment="one", status="FINISHED", start=0.0, tags=tags, params={}, metrics=MEASURED
    )


def view_state(*runs: TrackedRun) -> dict[str, Any]:
    """Decodes the view as MLflow's pages do: the name of the format, then base64 of zlib."""
    name, _, content = first_view(runs).partition(";")
    assert name == "deflate"
    return json.loads(zlib.decompress(base64.b64decode(content)))


def test_first_view_has_columns_of_success_and_cost_and_charts_in_order_of_sections() -> None:
    view = view_state(run("a"))
    columns = [column for column in view["selectedColumns"] if column.startswith("metrics.")]
    assert columns == [
        f"metrics.`{name}`" for name in ("start/verifier/accuracy", "test/verifier/accuracy", "train/spent/tokens")
    ]
    assert [section["name"] for section in view["compareRunSections"]] == ["Success", "Reward", "Critic", "Cost"]
    assert [(chart["metricSectionId"], chart["type"], chart["metricKey"]) for chart in view["compareRunCharts"]] == [
        ("Success", "LINE", "val/verifier/accuracy"),
        ("Success", "BAR", "test/verifier/accuracy"),
        ("Reward", "LINE", "train/reward/verifier"),
        ("Reward", "LINE", "train/reward/oracle"),
        ("Critic", "LINE", "val/oracle/auroc_depth1"),
        ("Cost", "BAR", "train/spent/tokens"),
    ]


@pytest.mark.parametrize(
    ("runs", "tag"),
    [
        ([run("a · seed 0", method="a"), run("a · seed 1", method="a"), run("b · seed 0", method="b")], "method"),
        ([run("x · seed 0", method="a", arm="x"), run("y · seed 0", method="a", arm="y")], "arm"),
        ([run("a · seed 0", method="a"), run("a · seed 1", method="a")], None),
        ([run("a · lr=1 · seed 0", method="a"), run("a · lr=2 · seed 0", method="a"), run("b", method="b")], None),
        ([run("a · seed 0", method="a"), run("b · seed 0")], None),
        ([], None),
    ],
)
def test_first_view_groups_runs_that_differ_only_in_seed(runs: list[TrackedRun], tag: str | None) -> None:
    grouped = view_state(*runs)["groupBy"]
    assert (grouped and [key["groupByData"] for key in grouped["groupByKeys"]]) == (tag and [tag])
