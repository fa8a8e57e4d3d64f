"""Open MLflow's pages for this machine alone, and say where the experiments stand side by side:  make dashboard

python -m experiments.dashboard [MLflow's own flags]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from urllib.parse import quote

from experiments.track import TrackerError, connect, tracking_address

HOST, PORT = "127.0.0.1", "5000"
PORT_FLAGS = ("--port", "-p")
SHOWN = "tags.stage = 'grpo'"
"""The runs with the curves that are compared."""
FEWEST, MOST = 2, 8
"""Experiments that there must be for anything to stand beside anything, and that can be told apart."""


def command(typed: Sequence[str], address: str) -> list[str]:
    """MLflow's own, with what was typed behind it, which wins."""
    return ["ui", "--host", HOST, "--backend-store-uri", address, *typed]


def pages(typed: Sequence[str], address: str) -> str:
    """Where the pages are: at the server of the runs, else on this machine, at the port that was typed."""
    if address.startswith(("http://", "https://")):
        return address.rstrip("/")
    port = PORT
    for word, following in zip(typed, [*typed, ""][1:], strict=True):
        flag, equals, value = word.partition("=")
        if flag in PORT_FLAGS:
            port = value if equals else following
    return f"http://{HOST}:{port}"


def side_by_side(experiments: Mapping[str, str], at: str) -> str:
    """The address of MLflow's charts over these experiments, a curve for each of their runs in every panel.

    Args:
        experiments: name → id.
        at: where the pages are.
    """
    ids = quote(json.dumps([*experiments.values()], separators=(",", ":")), safe="")
    return f"{at}/#/compare-experiments/s?experiments={ids}&searchFilter={quote(SHOWN, safe='')}&compareRunsMode=CHART"


def main(typed: Sequence[str]) -> None:
    """Say the address, then become MLflow; a server of its own needs no second one."""
    address = tracking_address()
    try:
        tracker = connect()
        there = dict(islice(tracker.experiment_ids().items(), MOST))
    except TrackerError as error:
        sys.exit(str(error))
    at = pages(typed, tracker.address)
    if len(there) >= FEWEST:
        print(f"{', '.join(there)} side by side:\n{side_by_side(there, at)}", flush=True)
    if at == tracker.address.rstrip("/"):
        print(f"The runs are on a server that has its own pages: {at}")
        return
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *command(typed, address)])


if __name__ == "__main__":
    main(sys.argv[1:])
