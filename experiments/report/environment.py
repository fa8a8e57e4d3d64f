"""On what the runs were made: commits, packages, threads and devices, as far as MLflow knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, section, table
from experiments.system.secrets import without_paths

UNKNOWN = "not recorded"
PARAMETERS = {"device": "trainer.accelerator", "precision": "trainer.precision"}


def environment(found: Gathered) -> Html:
    """The section: each value that occurs, and the ids of all runs."""
    ids = "\n".join(f"{arm.label}: {' '.join(run.run_id for run in arm.runs.values())}" for arm in found.arms)
    listed = element("details", element("summary", "MLflow's ids of the runs"), element("pre", ids))
    return section("Environment", table(["", "value"], _rows(found), left=(0, 1)), listed)


def _rows(found: Gathered) -> Iterator[tuple[str, str]]:
    yield "commit", _each(run.tags.get("git_sha") or UNKNOWN for run in found.runs)
    for name, parameter in PARAMETERS.items():
        yield name, _each(run.params.get(parameter, UNKNOWN) for run in found.runs)
    stages = [stage for stages in found.stages.values() for stage in stages.values()]
    yield "threads", _each(stage.params["threads"] for stage in stages if "threads" in stage.params) or UNKNOWN
    origins = found.origins.values()
    yield "python", _each(origin.python for origin in origins) or UNKNOWN
    for package in dict.fromkeys(name for origin in origins for name in origin.packages):
        yield package, _each(origin.packages.get(package, UNKNOWN) for origin in origins)


def _each(values: Iterable[str]) -> str:
    return ", ".join(sorted({without_paths(value) for value in values}))
