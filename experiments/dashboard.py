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
from experiments.mlflow_sync import Tracker, TrackerError, connect, first_view, tracking_address
from experiments.system.terminal import protect_output

HOST, PORT = "127.0.0.1", "5000"
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


def side_by_side(experiments: Mapping[str, str], at: str) -> tuple[str, str]:
    """The addresses of MLflow's charts and of its table over the runs of these experiments, in their first view.

    Args:
        experiments: name → id.
        at: where the pages are.
    """
    ids = [*experiments.values()]
    beside = quote(json.dumps(ids, separators=(",", ":")), safe="")
    page = f"experiments/{ids[0]}/runs?" if len(ids) == 1 else f"compare-experiments/s?experiments={beside}&"
    table = f"{at}/#/{page}viewStateShareKey={first_view.KEY}"
    return f"{table}&compareRunsMode=CHART", table


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
        at = pages(flags, tracker.address)
        view = first_view.first_view(tracker.runs([*beside], kind="experiment"))
        for name in beside:
            tracker.tag_experiment(name, first_view.TAG, view)
        there = [*results(tracker, beside, at)]
    except (TrackerError, Refused) as error:
        sys.exit(str(error))
    if beside:
        charts, table = side_by_side(beside, at)
        print(f"The runs of {', '.join(beside)} side by side, charts:\n{charts}\nand a table:\n{table}", flush=True)
    for line in there:
        print(line, flush=True)
    if at == tracker.address.rstrip("/"):
        print(f"The runs are on a server that has its own pages: {at}")
        return
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *command(flags, address)])


if __name__ == "__main__":
    protect_output()
    main(sys.argv[1:])
