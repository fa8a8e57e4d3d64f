"""With which arm each one is compared.

grpo                      one arm that is plainly a baseline: every other is compared with it
clipo            → grpo

grpo · dapo               several: each of the others with the one of its own setting, as papers print
clipo · dapo     → grpo · dapo
grpo · gspo
clipo · gspo     → grpo · gspo
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.analysis.arms import Arm, value_of
from experiments.analysis.wishes import Refused

Against = Mapping[str, Arm]
"""An arm's label → the arm that it is compared with; without those that are compared with none."""
SETTING = ("scale", "family", "task", "objective", "advantage", "debug")
"""Tags in which an arm and its baseline agree, where there are several baselines."""
METHOD = ("experiment", "arm", "reward", "critic", "loss")
"""Axes, and the first parts of parameters, in which a method differs from what it is compared with."""


def compared_with(arms: Sequence[Arm], wish: str | None) -> list[int | None]:
    """Of each arm the place of the one that it is compared with; None of a baseline, and where none can be told.

    Args:
        arms: all of them.
        wish: a label, or a value that only one arm has; None: what could be a baseline (:func:`could_be_baseline`), and
            of several for each arm the only one that agrees with it in all but the method.

    Raises:
        Refused: for a wish that no arm meets, or more than one.
    """
    candidates = could_be_baseline(arms) if wish is None else [_wished(arms, wish)]
    if len(candidates) == 1:
        return [candidates[0] if place != candidates[0] else None for place in range(len(arms))]
    alike = [[one for one in candidates if _setting(arms[one]) == _setting(arm)] for arm in arms]
    return [own[0] if len(own) == 1 and place not in candidates else None for place, own in enumerate(alike)]


def in_order(compared: Sequence[int | None]) -> list[int]:
    """The places of the arms: each that is compared with none, below it those that are compared with it."""
    alone = [place for place, other in enumerate(compared) if other is None]
    return [one for place in alone for one in (place, *(at for at, other in enumerate(compared) if other == place))]


def could_be_baseline(arms: Sequence[Arm]) -> list[int]:
    """The places of those named ``…baseline``; where none is, of those rewarded by the verifier alone."""
    named = [place for place, arm in enumerate(arms) if "baseline" in arm.label]
    return named or [place for place, arm in enumerate(arms) if _plain(arm)]


def note_on_baselines(arms: Sequence[Arm], against: Against) -> list[str]:
    """Why an arm has no Δ, where more than one could be what it is compared with."""
    candidates = [arms[place].label for place in could_be_baseline(arms)]
    if len(candidates) < 2:
        return []
    those = ", ".join(candidates)
    if not against:
        return [f"No Δ: {len(candidates)} arms could be the baseline ({those}); say baseline=LABEL."]
    used = {arm.label for arm in against.values()}
    without = [arm.label for arm in arms if arm.label not in {*against, *used, *candidates}]
    told = f"no arm, or more than one, of {those} has its {', '.join(SETTING)} and other settings; say baseline=LABEL"
    return [f"No Δ for {label}: {told}." for label in without]


def _wished(arms: Sequence[Arm], wish: str) -> int:
    found = [place for place, arm in enumerate(arms) if wish == arm.label or wish in arm.values.values()]
    if len(found) != 1:
        how = "is none of the arms" if not found else f"is {len(found)} of the arms"
        raise Refused(f"The baseline {wish!r} {how}; there are: {'; '.join(arm.label for arm in arms)}")
    return found[0]


def _plain(arm: Arm) -> bool:
    """Rewarded by the verifier alone."""
    return all(value_of(run, "reward") == "verifier" for run in arm.runs.values())


def _setting(arm: Arm) -> dict[str, str]:
    """All but the method, of what tells arms apart and of what always must be alike."""
    run = next(iter(arm.runs.values()))
    own = {axis: value for axis, value in arm.values.items() if axis.partition(".")[0] not in METHOD}
    return {axis: value_of(run, axis) for axis in SETTING} | own
