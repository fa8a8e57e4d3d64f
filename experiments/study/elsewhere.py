"""What the arms' policies do in the suite's other settings: beyond what they were trained on, say.

Nothing is decided here: the primary metric is the one of the setting ``main``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from experiments.analysis.seeds import Rule, in_a_study
from experiments.study.plan import Study
from experiments.study.wording import ABSENT, over_seeds
from experiments.tracking.tracked_run import TrackedRun

GREEDY = re.compile(r"test/(?P<setting>[^/]+)/verifier/accuracy")
BySetting = Mapping[str, Mapping[str, float]]
"""Greedy success by setting and seed."""


def elsewhere_of(runs: Mapping[str, TrackedRun]) -> BySetting:
    """Of an arm's runs by seed: in the settings that all of them were tested in."""
    found: dict[str, dict[str, float]] = {}
    for seed, run in runs.items():
        for name, value in run.metrics.items():
            if match := GREEDY.fullmatch(name):
                found.setdefault(match["setting"], {})[seed] = value
    return {setting: by_seed for setting, by_seed in sorted(found.items()) if len(by_seed) == len(runs)}


def as_section(study: Study, arms: Mapping[str, BySetting]) -> str:
    """A table for the Markdown report; the empty string where the baseline was tested in no other setting.

    Args:
        study: which.
        arms: by name, the baseline among them.
    """
    baseline = study.primary.baseline
    settings = list(arms[baseline])
    if not settings:
        return ""
    head = ["arm", *(heading for setting in settings for heading in (setting, f"Δ to {baseline} over seeds"))]
    gain = partial(in_a_study, start_per_seed=study.start_per_seed)
    rows = [
        [name, *_cells(found, arms[baseline], settings, gain=None if name == baseline else gain)]
        for name, found in arms.items()
    ]
    return "\n".join(
        [
            *("## In other settings", ""),
            *("| " + " | ".join(line) + " |" for line in (head, ["---", *["---:"] * (len(head) - 1)], *rows)),
            *("", "Greedy success in percent, the mean over seeds.", ""),
        ]
    )


def as_cell(found: BySetting) -> str:
    """``larger:0.12 longproc:0.03``, the means, for the CSV."""
    return " ".join(f"{setting}:{fmean(by_seed.values())}" for setting, by_seed in found.items())


def _cells(found: BySetting, baseline: BySetting, settings: Sequence[str], *, gain: Rule | None) -> list[str]:
    cells: list[str] = []
    for setting in settings:
        if setting not in found:
            cells += [ABSENT, ABSENT]
            continue
        delta = gain and gain(found[setting], baseline[setting])
        cells += [f"{100 * fmean(found[setting].values()):.1f}", over_seeds(delta) if delta else ABSENT]
    return cells
