"""Where a run comes from: what was typed to start it, what its experiment is for, and the software it ran on.

    outputs/runs/NAME/RUN/origin.json    {"about": …, "overrides": […], "python": …, "packages": {…}}

It travels to MLflow, so that whoever reads a result there can make it again.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from experiments.cli.catalogue import catalogued

ORIGIN = "origin.json"
RUN = ("python", "-m", "experiments.run")
PACKAGES = ("torch", "lightning", "transformers", "peft", "hydra-core", "mlflow", "numpy")
SEED = re.compile(r"\+{0,2}seed=.*")
SWEEP = re.compile(r"\+{0,2}sweep=.*")
"""What makes a multirun of a single run: a job's own overrides hold its values, and this beside them."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Of one run."""

    about: str
    """The first line of the experiment's file; empty where there was none."""
    overrides: Sequence[str]
    """As they were typed, of one job of a sweep its own."""
    python: str
    packages: Mapping[str, str]
    """Name → version, of those that are installed."""


def origin_of(overrides: Sequence[str], experiment: str | None) -> Origin:
    """The origin of a run that starts in this process; ``experiment`` is the name of its file."""
    about = catalogued().get(experiment or "", "")
    return Origin(about=about, overrides=list(overrides), python=platform.python_version(), packages=_installed())


def as_json(origin: Origin) -> dict[str, Any]:
    """What :func:`parsed` reads."""
    return asdict(origin)


def parsed(content: bytes) -> Origin:
    """The origin in a file's content."""
    said = json.loads(content)
    return Origin(**{field.name: said[field.name] for field in fields(Origin)})


def command(overrides: Sequence[str]) -> str:
    """The line for a shell that runs this one run again."""
    return shlex.join([*RUN, *_without(SWEEP, overrides)])


def command_over_seeds(overrides: Mapping[str, Sequence[str]]) -> str | None:
    """One multirun for runs that differ by seed alone; None where they do not.

    Args:
        overrides: by seed.
    """
    rest = {tuple(_without(SEED, _without(SWEEP, typed))) for typed in overrides.values()}
    if len(rest) != 1:
        return None
    (shared,) = rest
    if len(overrides) == 1:
        return command([*shared, f"seed={next(iter(overrides))}"])
    return shlex.join([*RUN, "-m", *shared, f"seed={_listed(overrides)}"])


def _without(pattern: re.Pattern[str], overrides: Sequence[str]) -> list[str]:
    return [one for one in overrides if not pattern.fullmatch(one)]


def _listed(seeds: Collection[str]) -> str:
    return ",".join(sorted(seeds, key=lambda seed: (len(seed), seed)))


def _installed() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
