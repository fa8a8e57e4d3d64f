"""The initial view of an experiment's page in MLflow: table columns, and charts of success, reward, critic and cost.

MLflow stores a shared view as a tag of the experiment, and a URL selects it by ``viewStateShareKey``. The content has
the undocumented format of MLflow 3.17's pages.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.mlflow_sync.tracker import TrackedRun

KEY = "success"
"""The ``viewStateShareKey`` of the view in a URL."""
TAG = f"mlflow.sharedViewState.{KEY}"
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Success": (
        r"val/(.+/)?verifier/accuracy(_sampled)?",
        r"test/(average/.+|(.+/)?verifier/accuracy(_sampled)?)",
    ),
    "Reward": (r"train/reward/verifier", r"train/reward/.+"),
    "Critic": (r"val/oracle/auroc_depth[12]", r"val/critic/loss"),
    "Cost": (r"train/spent/(tokens|seconds)",),
}
"""Section of charts → patterns of its metrics; matches of an earlier pattern come first."""
COLUMNS = (r"(start|test)/(average/.+|(.+/)?verifier/accuracy(_sampled)?)", *SECTIONS["Cost"])
"""Patterns of the metrics in the table."""
SEED = re.compile(r" · seed \d+$")
ONE_ARM = ("arm", "method")
"""Tags by which runs of several seeds may be grouped into one curve."""


def first_view(runs: Sequence[TrackedRun]) -> str:
    """Returns the content of :data:`TAG` for these runs of kind "experiment", in the compressed format of MLflow."""
    names = {name for run in runs for name in run.metrics}
    state = {
        "selectedColumns": ["attributes.`Duration`", *(f"metrics.`{name}`" for name in _in_order(names, COLUMNS))],
        "compareRunSections": [{"uuid": section, "name": section, "display": True} for section in SECTIONS],
        "compareRunCharts": [
            _chart(name, section) for section, patterns in SECTIONS.items() for name in _in_order(names, patterns)
        ],
        "groupBy": _grouping(runs),
    }
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(_DEFAULTS | state).encode())).decode()


_DEFAULTS: dict[str, Any] = {
    "searchFilter": "tags.kind = 'experiment'",  # here, because a filter in the URL would drop the view
    "runsExpanded": {},
    "runsPinned": [],
    "runsHidden": [],
    "runsVisibilityMap": {},
    "runsHiddenMode": "FIRST_20_RUNS",
    "viewMaximized": False,
    "runListHidden": False,
    "isAccordionReordered": True,  # otherwise the sections are sorted by name
    "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True,
    "groupsExpanded": {},
    "autoRefreshEnabled": True,
    "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
}


def _in_order(names: set[str], patterns: Sequence[str]) -> list[str]:
    """Returns the names that fully match a pattern, without duplicates, sorted by pattern and then by name."""
    return list(dict.fromkeys(name for p in patterns for name in sorted(names) if re.fullmatch(p, name)))


def _chart(metric: str, section: str) -> dict[str, Any]:
    """Returns a line chart over steps for a metric logged during training, a bar chart for one logged once."""
    chart = {"uuid": metric, "metricSectionId": section, "metricKey": metric, "runsCountToCompare": 20}
    chart |= {"isGenerated": False, "deleted": False}
    if metric.startswith(("test/", "start/", "train/spent/")):
        return chart | {"type": "BAR"}
    scale = {"scaleType": "linear", "xAxisKey": "step", "xAxisScaleType": "linear", "selectedXAxisMetricKey": ""}
    shared = {"useGlobalXaxisKey": True, "useGlobalLineSmoothing": True, "lineSmoothness": 0}
    return chart | {"type": "LINE", "selectedMetricKeys": [metric], **scale, **shared}


def _grouping(runs: Sequence[TrackedRun]) -> dict[str, Any] | None:
    """Groups runs into one curve per arm if they differ only in seed; returns None if a group would mix settings."""
    arms = {SEED.sub("", run.tags.get("mlflow.runName", run.run_id)) for run in runs}
    for tag in ONE_ARM:
        values = {run.tags.get(tag) for run in runs}
        if None not in values and len(values) == len(arms) > 1:
            return {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": tag}]}
    return None
