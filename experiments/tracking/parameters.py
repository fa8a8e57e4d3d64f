"""A configuration as the flat parameters of a tracker: ``reward.weight = 0.2``.

The tracker's limits: names hold letters, digits and ``_ - . : / space``, values are cut at 250 characters (the whole
YAML travels as a file).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 250
_FORBIDDEN = re.compile(r"[^\w\-. :/]", re.ASCII)


def tracker_name(name: str) -> str:
    """``name`` with what the tracker refuses (``@ = | ( )`` …) as underscores."""
    return _FORBIDDEN.sub("_", name)[:LONGEST]


def flatten(config: Any, prefix: str = "", *, longest: int | None = LONGEST) -> dict[str, str]:
    """Leaves by dotted path. Lists of plain values are one leaf; items of a list of mappings go by their index.

    A value is cut to ``longest`` letters; with None it is whole.
    """
    if isinstance(config, Mapping) and config:
        items = [(str(key), value) for key, value in config.items()]
    elif _holds_mappings(config):
        items = [(str(index), value) for index, value in enumerate(config)]
    else:
        return {tracker_name(prefix): _text(config)[:longest]}
    flat: dict[str, str] = {}
    for key, value in items:
        flat |= flatten(value, f"{prefix}.{key}" if prefix else key, longest=longest)
    return flat


def _holds_mappings(config: Any) -> bool:
    return isinstance(config, Sequence) and not isinstance(config, str) and any(isinstance(i, Mapping) for i in config)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
