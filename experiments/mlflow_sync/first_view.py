"""What MLflow's pages of an experiment begin with: the columns of its table, and charts of success, reward and cost.

MLflow keeps a shared view as a tag of the experiment, and an address names it by ``viewStateShareKey``. The form of its
content is that of MLflow 3.17's pages, which no document describes.
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
"""Names the view in an address."""
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
"""Section of charts → patterns of its metrics; those of an earlier pattern come first."""
COLUMNS = (r"(start|test)/(average/.+|(.+/)?verifier/accuracy(_sampled)?)", *SECTIONS["Cost"])
"""Patterns of the metrics in the table."""
SEED = re.compile(r" · seed \d+$")
ONE_ARM = ("arm", "method")
"""Tags by which runs of several seeds may be one curve."""


def first_view(runs: Sequence[TrackedRun]) -> str:
    """The content of :data:`TAG` for these runs of kind experiment, in the compressed form of MLflow's pages."""
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
    "searchFilter": "tags.kind = 'experiment'",  # an address with a filter of its own would lose the view
    "runsExpanded": {},
    "runsPinned": [],
    "runsHidden": [],
    "runsVisibilityMap": {},
    "runsHiddenMode": "FIRST_20_RUNS",
    "viewMaximized": False,
    "runListHidden": False,
    "isAccordionReordered": True,  # else the sections are sorted by name
    "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True,
    "groupsExpanded": {},
    "autoRefreshEnabled": True,
    "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
}


def _in_order(names: set[str], patterns: Sequence[str]) -> list[str]:
    """The names that a pattern matches whole, each once, by pattern and then by name."""
    return list(dict.fromkeys(name for p in patterns for name in sorted(names) if re.fullmatch(p, name)))


def _chart(metric: str, section: str) -> dict[str, Any]:
    """A curve over steps of what is logged while training, a bar of what is logged once."""
    chart = {"uuid": metric, "metricSectionId": section, "metricKey": metric, "runsCountToCompare": 20}
    chart |= {"isGenerated": False, "deleted": False}
    if metric.startswith(("test/", "start/", "train/spent/")):
        return chart | {"type": "BAR"}
    scale = {"scaleType": "linear", "xAxisKey": "step", "xAxisScaleType": "linear", "selectedXAxisMetricKey": ""}
    shared = {"useGlobalXaxisKey": True, "useGlobalLineSmoothing": True, "lineSmoothness": 0}
    return chart | {"type": "LINE", "selectedMetricKeys": [metric], **scale, **shared}


def _grouping(runs: Sequence[TrackedRun]) -> dict[str, Any] | None:
    """One curve for each arm where its runs differ in their seeds alone; None where a group would mix settings."""
    arms = {SEED.sub("", run.tags.get("mlflow.runName", run.run_id)) for run in runs}
    for tag in ONE_ARM:
        values = {run.tags.get(tag) for run in runs}
        if None not in values and len(values) == len(arms) > 1:
            return {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": tag}]}
    return None
