"""Tables as papers print them, to stand beside our own numbers: JSON in ``published/``, every figure as printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

FOLDER = files("contrastive_reasoning.evaluation") / "published"


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """One table; its figures are percentages."""

    source: str
    model: str
    """The base model, by its name on the hub."""
    columns: Mapping[str, str]
    """Name of a set or an average of ours → heading in the paper."""
    rows: Mapping[str, Mapping[str, float]]
    """Method → column → figure; the first row is the base model."""
    deltas: Mapping[str, Mapping[str, float]]
    """The Δ printed under a method, which the paper took before rounding."""


def published_names() -> list[str]:
    """The tables that there are, sorted."""
    return sorted(file.name.removesuffix(".json") for file in FOLDER.iterdir() if file.name.endswith(".json"))


def published_table(name: str) -> PublishedTable:
    """The table in ``published/<name>.json``.

    Raises:
        ValueError: where there is none.
    """
    known = published_names()
    if name not in known:
        raise ValueError(f"no published table {name!r}; there are {', '.join(known)}")
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    columns = content["columns"]
    named = {
        part: {method: dict(zip(columns, figures, strict=True)) for method, figures in content[part].items()}
        for part in ("rows", "deltas")
    }
    return PublishedTable(source=content["source"], model=content["model"], columns=columns, **named)
