"""Open MLflow's pages for this machine alone, and print where runs and results are:  make dashboard

python -m experiments.dashboard [NAME …] [MLflow's own flags]      these experiments or studies, else the newest
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from urllib.parse import quote

from experiments.analysis.runs import Refused
from experiments.config.hints import did_you_mean
from experiments.mlflow_sync import TrackedRun, Tracker, TrackerError, connect, tracking_address
from experiments.system.terminal import protect_output

HOST, PORT = "127.0.0.1", "5000"
BY_INTEREST = ("grpo", "critic", "warm_start", "evaluate")
"""Every stage; of an experiment the runs of the first one that it has are compared."""
MOST = 8
"""Experiments that can be told apart."""


def command(flags: Sequence[str], address: str) -> list[str]:
    """MLflow's own, with the flags that were given behind it, which win."""
    return ["ui", "--host", HOST, "--backend-store-uri", address, *flags]


def pages(flags: Sequence[str], address: str) -> str:
    """Where the pages are: at the server of the runs, else on this machine, at the port of the flags."""
    if address.startswith(("http://", "https://")):
        return address.rstrip("/")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", "-p", default=PORT)
    return f"http://{HOST}:{parser.parse_known_args(flags)[0].port}"


def shown(names: Sequence[str], there: Mapping[str, str]) -> dict[str, str]:
    """Name → id of the experiments of these names, or of the newest.

    Raises:
        Refused: for a name that is not there.
    """
    for name in names:
        if name not in there:
            raise Refused(f"No experiment {name!r} in MLflow; {did_you_mean(name, there, names=there)}")
    return {name: there[name] for name in names} or dict(islice(there.items(), MOST))


def search_filter(stages: Sequence[TrackedRun]) -> str:
    """MLflow's filter for the runs to compare, so that no experiment is without; all pass it where there are none.

    It has no "or" for tags: where experiments differ, what is left out is named.
    """
    there: dict[str, set[str]] = {}
    for run in stages:
        if "stage" in run.tags:  # one that begins just now is described in a moment
            there.setdefault(run.experiment, set()).add(run.tags["stage"])
    compared = {min(names, key=BY_INTEREST.index) for names in there.values()}
    if len(compared) == 1:
        return f"tags.stage = '{compared.pop()}'"
    left_out = [stage for stage in BY_INTEREST if stage not in compared] if compared else []
    return " AND ".join(f"tags.stage != '{stage}'" for stage in left_out)


def side_by_side(experiments: Mapping[str, str], at: str, *, those: str) -> str:
    """The address of MLflow's charts over these experiments, a curve for each of their runs in every panel.

    Of one experiment its own page has them; the arms of a study are the runs of one.

    Args:
        experiments: name → id.
        at: where the pages are.
        those: a filter of their runs.
    """
    ids = [*experiments.values()]
    view = f"searchFilter={quote(those, safe='')}&compareRunsMode=CHART"
    if len(ids) == 1:
        return f"{at}/#/experiments/{ids[0]}/runs?{view}"
    return f"{at}/#/compare-experiments/s?experiments={quote(json.dumps(ids, separators=(',', ':')), safe='')}&{view}"


def results(tracker: Tracker, experiments: Mapping[str, str], at: str) -> Iterator[str]:
    """A line for each experiment's newest sweep and comparison, whose pages begin with heat-map, charts and table."""
    for kind in ("sweep", "comparison"):
        newest = {run.experiment: run for run in tracker.runs([*experiments], kind=kind)}
        for name, run in newest.items():
            yield f"The newest {kind} of {name}: {at}/#/experiments/{experiments[name]}/runs/{run.run_id}"


def main(typed: Sequence[str]) -> None:
    """Print the addresses, then become MLflow; a server of its own needs no second one."""
    address = tracking_address()
    names = list(takewhile(lambda word: not word.startswith("-"), typed))
    flags = typed[len(names) :]
    try:
        tracker = connect()
        beside = shown(names, tracker.experiment_ids())
        those = search_filter(tracker.runs([*beside], kind="stage"))
        at = pages(flags, tracker.address)
        there = [*results(tracker, beside, at)]
    except (TrackerError, Refused) as error:
        sys.exit(str(error))
    if beside:
        print(f"The runs of {', '.join(beside)} side by side:\n{side_by_side(beside, at, those=those)}", flush=True)
    for line in there:
        print(line, flush=True)
    if at == tracker.address.rstrip("/"):
        print(f"The runs are on a server that has its own pages: {at}")
        return
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *command(flags, address)])


if __name__ == "__main__":
    protect_output()
    main(sys.argv[1:])
