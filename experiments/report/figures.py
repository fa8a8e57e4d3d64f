"""The pictures that the newest run of each arm logged, the last of each name; equal ones once, made small."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence

from PIL import Image

from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, section
from experiments.track import RunRecord

FOLDER = "figures"
MOST, MOST_OF_AN_ARM = 12, 4
WIDTH, COLOURS = 1000, 128
FIRST = "similarity"
"""What is shown before other pictures, in the name."""
LARGEST = 4_000_000
"""Bytes of a file that is opened at all."""
STAGES = ("critic", "grpo")


def figures(found: Gathered) -> Html:
    """The section."""
    drawn = list(_pictures(found))
    shown = [element("figure", element("figcaption", said), _image(content)) for said, content in drawn[:MOST]]
    more = f" {len(drawn) - MOST} more are in MLflow." if len(drawn) > MOST else ""
    about = f"Of the newest run of each arm, as they were last logged; equal ones once.{more}"
    grid = element("div", *shown, class_="pictures large")
    return section("Figures of the runs", *([grid, element("p", about, class_="note")] if shown else []))


def _pictures(found: Gathered) -> Iterator[tuple[str, bytes]]:
    """Each with what it shows, first one of every arm, then the second ones."""
    seen: set[str] = set()
    of_arms = [(arm.label, list(_of_arm(found, found.newest_stages(arm)))) for arm in found.arms]
    for place in range(MOST_OF_AN_ARM):
        for label, pictures in of_arms:
            if place >= len(pictures):
                continue
            run, path = pictures[place]
            content = found.tracker.artifacts.read(run.run_id, path)
            digest = hashlib.sha256(content).hexdigest()
            if digest not in seen and len(content) <= LARGEST:
                seen.add(digest)
                name, _, step = path.removeprefix(f"{FOLDER}/").removesuffix(".png").rpartition("/")
                yield f"{name} at step {step}: {label}", content


def _of_arm(found: Gathered, stages: Mapping[str, RunRecord]) -> Iterator[tuple[RunRecord, str]]:
    for stage in STAGES:
        if stage in stages:
            files = found.tracker.artifacts.files(stages[stage].run_id, FOLDER)
            ordered = sorted(last_of_each(files), key=lambda path: FIRST not in path)
            yield from ((stages[stage], path) for path in ordered)


def last_of_each(files: Sequence[str]) -> list[str]:
    """Of ``figures/<name>/<step>.png`` the highest step of each name."""
    last: dict[str, tuple[int, str]] = {}
    for path in files:
        name, _, step = path.removesuffix(".png").rpartition("/")
        if path.endswith(".png") and step.isdigit():
            last[name] = max(last.get(name, (-1, "")), (int(step), path))
    return [path for _, path in last.values()]


def _image(content: bytes) -> Html:
    """The picture inside of the page."""
    with Image.open(io.BytesIO(content), formats=["PNG"]) as opened:
        small = opened.convert("RGB")
    small.thumbnail((WIDTH, WIDTH))
    file = io.BytesIO()
    small.quantize(COLOURS).save(file, format="PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    return element("img", src=f"data:image/png;base64,{data}", alt="")
