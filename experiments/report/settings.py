"""In what the arms differ: of each the resolved parameters that are not those of the first, as a rule the baseline."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.analysis.arms import ABSENT, Arm
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, section, table
from experiments.system.secrets import without_paths

MOST = 60
"""Lines of an arm; the whole configuration is in MLflow."""
TARGET = "_target_"
UNTOLD = ("name", "arm", "seed", "git_sha", "output_dir")
"""Root keys that say nothing of what was done."""


def settings(found: Gathered) -> Html:
    """The section; nothing for a single arm."""
    first, *others = found.arms
    parts = [_of_arm(arm, first) for arm in others]
    about = element("p", f"Resolved configurations, beside that of {first.label}. Seeds are left out.", class_="note")
    return section("How the arms differ", *([about, *parts] if parts else []))


def _of_arm(arm: Arm, first: Arm) -> Html:
    changed = differences(parameters(arm), parameters(first))
    if not changed:
        return element("p", f"{arm.label}: in no parameter.")
    rows = [[element("code", key), without_paths(one), without_paths(other)] for key, one, other in changed[:MOST]]
    left_out = len(changed) - MOST
    more = [element("p", f"{left_out} more are in MLflow.", class_="note")] if left_out > 0 else []
    summary = element("summary", f"{arm.label}: {len(changed)} parameter{'' if len(changed) == 1 else 's'}")
    body = table(["parameter", arm.label, first.label], rows, left=(0, 1, 2), class_="wrapped")
    return element("details", summary, body, *more)


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(parameter, ours, theirs) of all that differ.

    What stands in several places is told at the shortest (``reward.weight`` rather than ``module.reward.weight``), and
    a part that one side does not have by its ``_target_`` alone.
    """
    pairs = {key: (ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in ours.keys() | theirs.keys()}
    changed = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    told = [key for key in changed if not _repeated(key, changed) and not _within_absent(key, changed)]
    ordered = sorted(told, key=lambda key: (key.partition(".")[0], key.count("."), key))
    return [(key, *changed[key]) for key in ordered]


def _repeated(key: str, changed: Mapping[str, tuple[str, str]]) -> bool:
    """Whether the end of the key is a key of its own that changed alike."""
    parts = key.split(".")
    ends = (".".join(parts[start:]) for start in range(1, len(parts) - 1))
    return any(changed.get(end) == changed[key] for end in ends)


def _within_absent(key: str, changed: Mapping[str, tuple[str, str]]) -> bool:
    parts = key.split(".")
    targets = (".".join([*parts[:length], TARGET]) for length in range(1, len(parts)))
    return any(ABSENT in changed.get(target, ()) for target in targets if target != key)


def parameters(arm: Arm) -> dict[str, str]:
    """What all runs of the arm share; where they differ, each value once."""
    names = dict.fromkeys(name for run in arm.runs.values() for name in run.params)
    told = [name for name in names if name not in UNTOLD and name.rpartition(".")[2] != "seed"]
    values = {name: sorted({run.params.get(name, ABSENT) for run in arm.runs.values()}) for name in told}
    return {name: " | ".join(several) for name, several in values.items()}
