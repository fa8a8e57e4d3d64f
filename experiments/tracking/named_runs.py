"""Run folders by the name that a person gives them: ``outputs/runs/NAME``, where NAME may be mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments.cli.catalogue import experiments, studies
from experiments.cli.suggestions import did_you_mean, nearest

RUNS = "runs"


class NoSuchRuns(LookupError):
    """A name that nothing has run under, and nothing could."""


def check_names(folders: Iterable[Path]) -> None:
    """Of what is not there under ``runs/``, only an experiment or a study that has not run yet is no mistake.

    Raises:
        NoSuchRuns: for anything else, in one sentence.
    """
    for folder in folders:
        below = [path for path in (*reversed(folder.parents), folder) if RUNS in path.parent.parts]
        missing = next((path for path in below if not path.exists()), None)
        if missing is not None:
            _check(missing.name, missing.parent)


def _check(name: str, above: Path) -> None:
    there = sorted(path.name for path in above.iterdir() if path.is_dir()) if above.is_dir() else []
    to_come = [*experiments(), *studies()] if above.name == RUNS else []
    if name not in to_come:
        known = [*there, *to_come]
        raise NoSuchRuns(f"no {name!r} in {above}; {did_you_mean(name, known if nearest(name, known) else there)}")
