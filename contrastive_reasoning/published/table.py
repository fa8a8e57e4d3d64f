"""Tables from papers, for comparison with our own results: one JSON file each, every figure as printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

FOLDER = files("contrastive_reasoning.published")


@dataclass(frozen=True, kw_only=True)
class PublishedArm:
    """One method at one setting, and the figures that a paper printed for it, in percent."""

    source: str
    """The table that contains it."""
    method: str
    model: str
    """The base model, by its name on the hub."""
    settings: Mapping[str, str | float]
    """Key of our configuration → its value, for all keys by which a paper's arms differ."""
    figures: Mapping[str, float]
    """Set or average → figure."""
    deltas: Mapping[str, float]
    """The Δ printed under it, which the paper computed before rounding; empty if there is none."""
    plain: str | None
    """The method that the Δ is relative to."""
    repeats: str | None = None
    """An earlier row's method with the same settings: the paper printed two runs of them."""


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """One table; its figures are percentages."""

    source: str
    model: str
    """The base model, by its name on the hub."""
    columns: Mapping[str, str]
    """Name of a set or an average of ours → heading in the paper."""
    rows: Mapping[str, Mapping[str, float]]
    """Method → column → figure."""
    base: str | None
    """The method of the base model's row; None if the table has none."""
    deltas: Mapping[str, Mapping[str, float]]
    """The Δ printed under a method, which the paper computed before rounding."""
    arms: Sequence[PublishedArm]
    """All rows but the base model's, and the rows of the paper's further tables on the same sets, or of other models,
    base models too: a base model has no settings.

    The temperature is the one of the table, or else the paper's default of 0.05. GRPO+CLIPO of Table 2 equals, figure
    by figure, the row of 0.02 in its Table 17. GRPO+CLIPO of Table 1 is no row of Table 16, whose row of 0.05 has other
    figures.
    """

    def of(self, model: str | None) -> PublishedTable:
        """The paper's rows for ``model`` if it is not the table's own model; the table itself if there are none."""
        others = [] if same_model(model, self.model) else [arm for arm in self.arms if same_model(model, arm.model)]
        if not others:
            return self
        return replace(
            self,
            source=", ".join(dict.fromkeys(arm.source for arm in others)),
            model=others[0].model,
            rows={arm.method: arm.figures for arm in others},
            deltas={arm.method: arm.deltas for arm in others if arm.deltas},
        )


def same_model(given: str | None, printed: str) -> bool:
    """Compares the last part of the names: a model may be in a folder."""
    return given is not None and given.rstrip("/").rpartition("/")[2] == printed.rpartition("/")[2]


def published_names() -> list[str]:
    """The names of the available tables, sorted."""
    return sorted(file.name.removesuffix(".json") for file in FOLDER.iterdir() if file.name.endswith(".json"))


def published_table(name: str) -> PublishedTable:
    """The table in ``<name>.json``. Raises ValueError if there is none."""
    known = published_names()
    if name not in known:
        raise ValueError(f"no published table {name!r}; there are {', '.join(known)}")
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    columns = content["columns"]

    def by_column(figures: Sequence[float]) -> dict[str, float]:
        return dict(zip(columns, figures, strict=True))

    rows, deltas = ({method: by_column(row) for method, row in content[part].items()} for part in ("rows", "deltas"))
    own = [
        PublishedArm(
            source=content["source"],
            method=method,
            model=content["model"],
            settings=settings,
            figures=rows[method],
            deltas=deltas.get(method, {}),
            plain=method.partition("+")[0] if method in deltas else None,
        )
        for method, settings in content["settings"].items()
    ]
    further = [
        PublishedArm(
            source=arm["source"],
            method=arm["method"],
            model=arm.get("model", content["model"]),
            settings=arm["settings"],
            figures=by_column(arm["figures"]),
            deltas=by_column(arm["deltas"]) if "deltas" in arm else {},
            plain=arm.get("plain"),
            repeats=arm.get("repeats"),
        )
        for arm in content["further"]
    ]
    return PublishedTable(
        source=content["source"],
        model=content["model"],
        columns=columns,
        base=content["base"],
        rows=rows,
        deltas=deltas,
        arms=[*own, *further],
    )
