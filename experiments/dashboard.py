"""Start MLflow's user interface on this machine and print the addresses of runs and results:  make dashboard

python -m experiments.dashboard [NAME …] [flags of mlflow ui]      these experiments or studies, else the newest
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from urllib.parse import quote

from experiments.analysis.runs import Refused
from experiments.config.hints import not_in_mlflow
from experiments.mlflow_sync import Tracker, TrackerError, connect, first_view, tracking_address
from experiments.system.terminal import protect_output

HOST, PORT = "127.0.0.1", "5000"
MOST = 8
"""Number of experiments in one view; more cannot be distinguished."""


def command(flags: Sequence[str], address: str) -> list[str]:
    """Returns the arguments of ``mlflow``. The given flags come last, so they override the defaults."""
    return ["ui", "--host", HOST, "--backend-store-uri", address, *flags]


def pages(flags: Sequence[str], address: str) -> str:
    """Returns the address of the pages: the tracking server, or this machine with the port of the flags."""
    if address.startswith(("http://", "https://")):
        return address.rstrip("/")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", "-p", default=PORT)
    return f"http://{HOST}:{parser.parse_known_args(flags)[0].port}"


def choose_experiments(names: Sequence[str], there: Mapping[str, str]) -> dict[str, str]:
    """Returns name → id of the experiments with these names; without names, of the newest.

    Raises:
        Refused: if MLflow has no experiment of a name.
    """
    for name in names:
        if name not in there:
            raise Refused(f"No experiment {name!r} in MLflow; {not_in_mlflow(name, there)}")
    return {name: there[name] for name in names} or dict(islice(there.items(), MOST))


def share_view(tracker: Tracker, names: Collection[str]) -> bool:
    """Stores the first view of these experiments. Prints why and returns False if this MLflow does not accept it."""
    try:
        content = first_view.first_view(tracker.runs([*names], kind="experiment"))
        for name in names:
            tracker.tag_experiment(name, first_view.TAG, content)
    except TrackerError as error:
        print(f"The pages start with MLflow's own view: {error}", file=sys.stderr)
        return False
    return True


def side_by_side(experiments: Mapping[str, str], at: str, *, view: str | None) -> tuple[str, str]:
    """Returns the addresses of MLflow's charts and table over the runs of these experiments, name → id.

    ``at`` is the address of the pages, ``view`` the key of the view that :func:`share_view` stored; None: MLflow's own.
    """
    ids = [*experiments.values()]
    beside = quote(json.dumps(ids, separators=(",", ":")), safe="")
    page = f"experiments/{ids[0]}/runs?" if len(ids) == 1 else f"compare-experiments/s?experiments={beside}&"
    stored = "" if view is None else f"viewStateShareKey={view}&"
    return f"{at}/#/{page}{stored}compareRunsMode=CHART", f"{at}/#/{page}{stored}".rstrip("&?")


def results(tracker: Tracker, experiments: Mapping[str, str], at: str) -> Iterator[str]:
    """Yields the addresses of each experiment's newest sweep and comparison (heat map, charts and table)."""
    for kind in ("sweep", "comparison"):
        newest = {run.experiment: run for run in tracker.runs([*experiments], kind=kind)}
        for name, run in newest.items():
            yield f"The newest {kind} of {name}: {at}/#/experiments/{experiments[name]}/runs/{run.run_id}"


def main(arguments: Sequence[str]) -> None:
    """Prints the addresses, then replaces this process by MLflow, unless the runs are on a tracking server."""
    address = tracking_address()
    names = list(takewhile(lambda argument: not argument.startswith("-"), arguments))
    flags = arguments[len(names) :]
    try:
        tracker = connect()
        beside = choose_experiments(names, tracker.experiment_ids())
        at = pages(flags, tracker.address)
        view = first_view.KEY if share_view(tracker, beside) else None
        there = [*results(tracker, beside, at)]
    except (TrackerError, Refused) as error:
        sys.exit(str(error))
    if beside:
        charts, table = side_by_side(beside, at, view=view)
        print(f"The runs of {', '.join(beside)} side by side, charts:\n{charts}\nand a table:\n{table}")
    for line in there:
        print(line)
    if at == tracker.address.rstrip("/"):
        print(f"The runs are on a server that has its own pages: {at}")
        return
    sys.stdout.flush()  # execv discards what is buffered
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *command(flags, address)])


if __name__ == "__main__":
    protect_output()
    main(sys.argv[1:])
