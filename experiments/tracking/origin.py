"""Old import path of ``experiments.run_folder``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from experiments.config.folders import summaries
from experiments.run_folder.reader import ORIGIN as ORIGIN
from experiments.run_folder.reader import Origin as Origin

parsed = Origin.parse
RUN = ("python", "-m", "experiments.run")
SEED = re.compile(r"\+{0,2}seed=.*")
SWEEP = re.compile(r"\+{0,2}sweep=.*")


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


def as_json(origin: Origin) -> dict[str, object]:
    return asdict(origin)


def origin_of(overrides: Sequence[str], experiment: str | None) -> Origin:
    return Origin(
        about=summaries("experiment").get(experiment or "", ""), overrides=list(overrides), python="", packages={}
    )
