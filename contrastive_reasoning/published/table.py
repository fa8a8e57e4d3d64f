"""Tables as papers print them, to stand beside our own numbers: one JSON each, every figure as printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

FOLDER = files("contrastive_reasoning.published")


@dataclass(frozen=True, kw_only=True)
class PublishedArm:
    """One method at one setting, and what a paper printed for it; percentages."""

    source: str
    """The table it stands in."""
    method: str
    model: str
    """The base model, by its name on the hub."""
    settings: Mapping[str, str | float]
    """Key of our configuration → its value, for all keys by which a paper's arms differ."""
    figures: Mapping[str, float]
    """By set or average."""
    deltas: Mapping[str, float]
    """The Δ printed under it, which the paper took before rounding; empty where there is none."""
    plain: str | None
    """The method that the Δ is to."""
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
    """Whose row is the base model's; None where the table has none."""
    deltas: Mapping[str, Mapping[str, float]]
    """The Δ printed under a method, which the paper took before rounding."""
    arms: Sequence[PublishedArm]
    """All rows but the base model's, and those of the paper's further tables on the same sets, or of other models, base
    models too: a base model has no settings.

    A temperature is the one a table says, else the paper's default of 0.05; GRPO+CLIPO of Table 2 is its Table 17's row
    of 0.02, figure by figure, and GRPO+CLIPO of Table 1 is no row of Table 16, whose row of 0.05 has other figures.
    """

    def of(self, model: str | None) -> PublishedTable:
        """The rows that the paper has of ``model`` beside its table's own model; itself where there are none."""
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
    """By the last part of the name: a model may lie in a folder."""
    return given is not None and given.rstrip("/").rpartition("/")[2] == printed.rpartition("/")[2]


def published_names() -> list[str]:
    """The tables that there are, sorted."""
    return sorted(file.name.removesuffix(".json") for file in FOLDER.iterdir() if file.name.endswith(".json"))


def published_table(name: str) -> PublishedTable:
    """The table in ``<name>.json``. Raises ValueError where there is none."""
    known = published_names()
    if name not in known:
        raise ValueError(f"no published table {name!r}; there are {', '.join(known)}")
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    columns = content["columns"]

    def named(figures: Sequence[float]) -> dict[str, float]:
        return dict(zip(columns, figures, strict=True))

    rows, deltas = ({method: named(row) for method, row in content[part].items()} for part in ("rows", "deltas"))
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
            figures=named(arm["figures"]),
            deltas=named(arm["deltas"]) if "deltas" in arm else {},
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
