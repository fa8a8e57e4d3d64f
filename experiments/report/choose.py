"""Which of the logged pictures a page shows: one of every kind first, then second ones of each in turn.

    by kind    similarity: A B C    goals: A B    completions: C
    taken      similarity A, goals A, completions C │ similarity B, goals B │ similarity C

No kind is lost, however many there are; what is above the limit is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from experiments.report.image import image
from experiments.report.markup import Html, element
from experiments.tracking.artifacts import Artifacts

MOST = 20
"""Pictures of a section, unless there are more kinds."""


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What one arm, comparison or sweep has of a kind of picture: shown together or not at all."""

    owner: str
    run_id: str
    captions: Mapping[str, str]
    """File among the run's artifacts → what the picture is."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What is shown, by kind, and what is not."""

    shown: Mapping[str, Sequence[Html]]
    left_out: Mapping[str, Sequence[str]]
    """Kind → its owners."""


def chosen(artifacts: Artifacts, by_kind: Mapping[str, Sequence[Logged]], *, most: int = MOST) -> Chosen:
    """Take kinds in turn until there are ``most`` pictures; equal ones of a kind once, under their first owner."""
    shown: dict[str, list[Html]] = {kind: [] for kind in by_kind}
    left_out: dict[str, list[str]] = {kind: [] for kind in by_kind}
    seen: dict[str, set[bytes]] = {kind: set() for kind in by_kind}
    count = 0
    for kind, logged in in_turns(by_kind):
        if count >= most and shown[kind]:
            left_out[kind].append(logged.owner)
            continue
        read = {caption: artifacts.read(logged.run_id, path) for path, caption in logged.captions.items()}
        new = {caption: content for caption, content in read.items() if content not in seen[kind]}
        seen[kind].update(new.values())
        figures = [figure for figure in (_figure(content, caption) for caption, content in new.items()) if figure]
        count += len(figures)
        shown[kind] += [element("div", *figures, class_="pictures large together")] if len(figures) > 1 else figures
        if len(figures) < len(new):
            left_out[kind].append(f"{logged.owner} (too large, or no PNG)")
    return Chosen(
        shown={kind: figures for kind, figures in shown.items() if figures},
        left_out={kind: owners for kind, owners in left_out.items() if owners},
    )


def in_turns(by_kind: Mapping[str, Sequence[Logged]]) -> Iterator[tuple[str, Logged]]:
    """The first of every kind, then the second ones, and so on."""
    for turn in zip_longest(*by_kind.values()):
        yield from ((kind, logged) for kind, logged in zip(by_kind, turn, strict=True) if logged is not None)


def grid(found: Chosen) -> Html:
    """The pictures, those of a kind beside each other."""
    return element("div", *(figure for figures in found.shown.values() for figure in figures), class_="pictures large")


def told(found: Chosen, *, where: str) -> Html:
    """Which are not shown, and where they are; nothing where all are."""
    lines = [element("li", f"{kind}: {', '.join(owners)}") for kind, owners in found.left_out.items()]
    count = sum(map(len, found.left_out.values()))
    summary = element("summary", f"{count} left out here, in MLflow {where}")
    return element("details", summary, element("ul", *lines), class_="note") if lines else Html("")


def _figure(content: bytes, caption: str) -> Html | None:
    picture = image(content, alt=caption)
    return None if picture is None else element("figure", element("figcaption", caption), picture)
