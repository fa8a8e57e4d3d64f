"""Which way a sweeper learns: jobs return success, and Optuna's own default is to look for less of it."""

from __future__ import annotations

from typing import Any

from omegaconf import ListConfig

KEY, BETTER = "hydra.sweeper.direction", "maximize"


def wrong_direction(sweeper: Any) -> str | None:
    """What is wrong with where the sweeper will look; None where it looks for more, or has no such key.

    Args:
        sweeper: its configuration, with ``direction`` as Optuna's has it: a word, a member of an enumeration, or a
            list of them.
    """
    if "direction" not in sweeper:
        return None
    typed = sweeper.direction
    asked = [str(getattr(one, "name", one)) for one in (typed if isinstance(typed, ListConfig) else [typed])]
    if asked == [BETTER]:
        return None
    said = asked[0] if len(asked) == 1 else f"[{','.join(asked)}]"
    return f"{KEY}={said}: jobs return one number, of which more is better (success): say {KEY}={BETTER}"
