"""Send run folders to MLflow:  make sync name=llama_critic

python -m experiments.track outputs                         everything that MLflow does not have yet
python -m experiments.track outputs/runs/NAME/RUN --follow  every few seconds, until standard input has a byte or ends

SQLite in ``mlruns/`` by default, the server at ``MLFLOW_TRACKING_URI`` if that is set.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.config.folders import experiment_names, study_names
from experiments.config.hints import did_you_mean, nearest
from experiments.mlflow_sync import Tracker, TrackerError, tracking_address
from experiments.mlflow_sync.sync import follow, sync
from experiments.system.terminal import protect_output

RUNS = "runs"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.track", description="Send run folders to MLflow.")
    parser.add_argument("folders", nargs="+", type=Path, help="an experiment's run folder, or a folder above several")
    parser.add_argument("--follow", action="store_true", help="continue until standard input has a byte or ends")
    options = parser.parse_args(arguments)
    try:
        if options.follow:
            os.nice(5)  # training comes first
            return 0 if follow(options.folders[0], lambda: Tracker(tracking_address())) else 1
        if sentence := next(filter(None, map(unknown_name, options.folders)), None):
            print(sentence, file=sys.stderr)
            return 2
        return 0 if sync(options.folders, _answering) else 1
    except TrackerError as error:
        print(error, file=sys.stderr)
        return 2


def _answering() -> Tracker:
    """Returns a tracker after one successful request, so that an unreachable server is reported once."""
    tracker = Tracker(tracking_address())
    tracker.experiments()
    return tracker


def unknown_name(folder: Path) -> str | None:
    """Returns a sentence for a name not in ``runs/``; None if it is an experiment or study that has not run yet."""
    below = [path for path in (*reversed(folder.parents), folder) if RUNS in path.parent.parts]
    missing = next((path for path in below if not path.exists()), None)
    if missing is None:
        return None
    name, above = missing.name, missing.parent
    there = sorted(path.name for path in above.iterdir() if path.is_dir()) if above.is_dir() else []
    known = [*there, *experiment_names(), *study_names()] if above.name == RUNS else there
    if name in known:
        return None
    return f"no {name!r} in {above}; {did_you_mean(name, known if nearest(name, known) else there)}"


if __name__ == "__main__":
    protect_output()
    sys.exit(main(sys.argv[1:]))
