"""Send run folders to MLflow:  make sync name=llama_critic

python -m experiments.track outputs                         whatever MLflow does not have yet
python -m experiments.track outputs/runs/NAME/RUN --follow  every few seconds, until standard input has a byte or ends

SQLite in ``mlruns/`` by default, the server at ``MLFLOW_TRACKING_URI`` if that is set.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.config.folders import experiment_names, study_names
from experiments.config.hints import did_you_mean, nearest
from experiments.mlflow_sync import Tracker, TrackerError, tracking_address
from experiments.mlflow_sync.sync import follow, sync
from experiments.system.terminal import protect_output

RUNS = "runs"


class NoSuchRuns(LookupError):
    """A name that nothing has run under, and nothing could."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.track", description="Send run folders to MLflow.")
    parser.add_argument("folders", nargs="+", type=Path, help="an experiment's run folder, or a folder above several")
    parser.add_argument("--follow", action="store_true", help="go on until standard input has a byte or ends")
    options = parser.parse_args(arguments)
    try:
        if options.follow:
            os.nice(5)  # training comes first
            return 0 if follow(options.folders[0], _connect) else 1
        check_names(options.folders)
        return 0 if sync(options.folders, _answering) else 1
    except (TrackerError, NoSuchRuns) as error:
        print(error, file=sys.stderr)
        return 2


def _connect() -> Tracker:
    return Tracker(tracking_address())


def _answering() -> Tracker:
    """Asked once: where nobody answers, one sentence says so and not one for every folder."""
    tracker = _connect()
    tracker.experiments()
    return tracker


def check_names(folders: Iterable[Path]) -> None:
    """Of what is not there under ``runs/``, only an experiment or a study that has not run yet is no mistake.

    Raises:
        NoSuchRuns: for anything else, in one sentence.
    """
    for folder in folders:
        below = [path for path in (*reversed(folder.parents), folder) if RUNS in path.parent.parts]
        missing = next((path for path in below if not path.exists()), None)
        if missing is not None:
            _check_name(missing.name, missing.parent)


def _check_name(name: str, above: Path) -> None:
    there = sorted(path.name for path in above.iterdir() if path.is_dir()) if above.is_dir() else []
    to_come = [*experiment_names(), *study_names()] if above.name == RUNS else []
    if name not in to_come:
        known = [*there, *to_come]
        raise NoSuchRuns(f"no {name!r} in {above}; {did_you_mean(name, known if nearest(name, known) else there)}")


if __name__ == "__main__":
    protect_output()
    sys.exit(main(sys.argv[1:]))
