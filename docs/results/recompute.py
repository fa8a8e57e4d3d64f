"""Recomputes the differences that the pages print, from the CSVs beside this file.

    python docs/results/recompute.py      page, printed figure, recomputed figure; ends with 1 if one differs

``figures.csv`` has a row for each figure: CSVs, metric, arm, baseline, seeds, how, the printed figure and its pages. An
arm is a value of the column ``arm``, or pairs ``column=value``; ``a/b`` is the arm a or b. ``how`` is

    paired       mean difference of the starts or seeds that both have, ± half of its 95% t-interval
    Welch        an arm with other seeds than its baseline
    408 s        paired at this time of training; ``shorter s``: at the end of the shorter run of each pair
    120 batches  mean difference after so many batches, without an interval; also several numbers

Seconds include the critic's, and values between validations are interpolated.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
DOCS = ("index", "results", "concepts", "credit", "which_critic")
SIGNED = re.compile(r"[+−]\d+\.\d ± \d+\.\d")
Rows = list[dict[str, str]]

NO_RUNS = "single runs were not kept; the CSV is the page's table"
NO_CURVES = "the curves over tokens or seconds are in no CSV"
NO_PERTURBED = "success on perturbed stories is in no CSV"
MISSING = {
    NO_RUNS: {
        "results": ["+9.3 ± 5.4"],
        "overview": ["+9.3 ± 5.4", "+9.8 ± 3.2"],
        "countdown_credit": ["+9.3 ± 5.4", "+9.8 ± 3.2", "−11.0 ± 6.8", "+1.2 ± 2.5"],
        "countdown_credit_kl": ["+1.2 ± 2.5"],
        "countdown_level": ["−3.5 ± 5.0"],
        "arithmetic_clipo": [
            *("+0.3 ± 0.6", "−0.4 ± 1.5", "−0.1 ± 2.2", "−0.2 ± 3.3", "+0.6 ± 3.8", "−0.4 ± 0.8", "+0.2 ± 2.5"),
            *("−0.6 ± 7.2", "−0.9 ± 1.7", "−0.4 ± 2.8", "−0.6 ± 2.0", "−0.1 ± 3.9", "−0.4 ± 7.6", "−0.3 ± 0.6"),
            *("+0.4 ± 3.6", "+0.2 ± 0.9", "−0.2 ± 3.6", "−0.2 ± 4.8", "−0.1 ± 3.9", "−0.9 ± 2.5", "−0.2 ± 7.9"),
            *("−1.0 ± 3.8", "+0.4 ± 3.9"),
        ],
    },
    NO_CURVES: {
        "results": ["−5.1 ± 2.9", "−2.5 ± 2.3", "−1.5 ± 2.1"],
        "arithmetic_clipo": ["+0.9 ± 3.7", "+1.1 ± 2.3", "+2.0 ± 3.4", "+1.6 ± 2.6"],
        "countdown_credit_kl": ["+5.3 ± 4.3", "+4.8 ± 6.0", "+4.8 ± 3.1", "+5.6 ± 2.7", "+5.0 ± 2.0", "+5.3 ± 2.5"],
        "countdown_credit_kl_again": ["+5.4 ± 2.9"],
        "countdown_credit_levels": ["−6.8 ± 4.2"],
        "countdown_credit_qwen": ["+2.1 ± 2.9"],
        "countdown_credit_repeated": ["−5.1 ± 2.9", "−0.1 ± 4.3"],
        "countdown_credit_seconds": ["−2.5 ± 2.3"],
        "countdown_credit_strong": ["−1.5 ± 2.1"],
    },
    NO_PERTURBED: {
        "arithmetic_clipo": [
            *("+0.7 ± 0.8", "−1.1 ± 1.5", "+0.9 ± 1.9", "+0.9 ± 1.8", "+0.5 ± 1.6", "+1.5 ± 2.2", "+0.1 ± 4.7"),
            *("−0.2 ± 1.8", "−1.3 ± 7.3"),
        ],
    },
}
"""Reason → page → printed differences that no CSV can give. Nor can one give intervals of the nested bootstrap, pass@8
and shares of tokens: they need each problem's outcome, or the curves over tokens."""


class Figure(NamedTuple):
    """A row of ``figures.csv``."""

    csv: str
    metric: str
    arm: str
    baseline: str
    seeds: str
    how: str
    printed: str
    pages: str


def figures() -> list[Figure]:
    with (FOLDER / "figures.csv").open(encoding="utf-8", newline="") as lines:
        return [Figure(**row) for row in csv.DictReader(lines)]


def page_path(page: str) -> Path:
    if page == "README":
        return ROOT / "README.md"
    return ROOT / "docs" / f"{page}.md" if page in DOCS else FOLDER / f"{page}.md"


def text_of(page: str) -> str:
    """The page's text on one line, since a figure may stand at a line break."""
    return " ".join(page_path(page).read_text(encoding="utf-8").split())


def read(name: str) -> Rows:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        return [*csv.DictReader(lines)]


def rows_of(rows: Rows, arm: str, seeds: str) -> Rows:
    """The rows of an arm with these seeds: *all*, or first-last."""
    pairs = [pair.partition("=")[::2] for pair in arm.split()] if "=" in arm else [("arm", arm)]
    low, _, high = seeds.partition("-")
    kept = [row for row in rows if all(row[column] in wanted.split("/") for column, wanted in pairs)]
    return kept if seeds == "all" else [row for row in kept if int(low) <= int(row["seed"]) <= int(high)]


def by_start(figure: Figure, arm: str) -> dict[tuple[str, int], Rows]:
    """(CSV, seed) → rows of the arm: a seed of another study is another start."""
    found: dict[tuple[str, int], Rows] = {}
    for name in figure.csv.split("+"):
        for row in rows_of(read(name), arm, figure.seeds):
            found.setdefault((name, int(row["seed"])), []).append(row)
    return found


def points(rows: Rows, metric: str) -> float:
    (row,) = rows
    return 100 * float(row[metric])


def paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Mean of the differences and half of its 95% t-interval."""
    each = [a - b for a, b in zip(ours, theirs, strict=True)]
    return fmean(each), float(student.ppf(0.975, len(each) - 1)) * stdev(each) / len(each) ** 0.5


def welch(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Difference of the means and half of its 95% interval, with Welch's degrees of freedom."""
    errors = [variance(values) / len(values) for values in (ours, theirs)]
    degrees = sum(errors) ** 2 / sum(e**2 / (len(v) - 1) for e, v in zip(errors, (ours, theirs), strict=True))
    return fmean(ours) - fmean(theirs), float(student.ppf(0.975, degrees)) * sum(errors) ** 0.5


def at(rows: Rows, column: str, place: float, metric: str) -> float:
    """The curve's value in points, interpolated."""
    costs, values = ([float(row[key]) for row in rows] for key in (column, metric))
    return 100 * float(np.interp(place, costs, values))


def printed(mean: float, half: float | None = None) -> str:
    """``+3.9 ± 2.3``, with a minus sign, and without a sign at 0.0."""
    text = f"{one_digit(mean):+}".replace("-", "−")
    text = "0.0" if text[1:] == "0.0" else text
    return text if half is None else f"{text} ± {one_digit(half)}"


def one_digit(value: float) -> Decimal:
    """Rounds half up; success of single runs has four digits, so a mean can end in exactly 5."""
    return Decimal(f"{value:.8f}").quantize(Decimal("0.1"), ROUND_HALF_UP)


def recompute(figure: Figure) -> str:
    """The figure in the form in which it is printed."""
    ours, theirs = by_start(figure, figure.arm), by_start(figure, figure.baseline)
    both = sorted(ours.keys() & theirs.keys())
    if figure.how == "Welch":
        return printed(*welch(*([points(rows, figure.metric) for rows in arm.values()] for arm in (ours, theirs))))
    if figure.how == "paired":
        return printed(*paired(*([points(arm[start], figure.metric) for start in both] for arm in (ours, theirs))))
    *places, unit = figure.how.split()
    if unit == "batches":
        gains = [
            [at(arm[start], "step", float(place), figure.metric) for start in both]
            for place in places
            for arm in (ours, theirs)
        ]
        return ", ".join(printed(fmean(a) - fmean(b)) for a, b in zip(gains[::2], gains[1::2], strict=True))
    pairs = [(ours[start], theirs[start]) for start in both]
    ends = [min(max(float(row["seconds"]) for row in rows) for rows in pair) for pair in pairs]
    seconds = ends if places == ["shorter"] else [float(places[0])] * len(pairs)
    sides = [
        [at(pair[side], "seconds", place, figure.metric) for pair, place in zip(pairs, seconds, strict=True)]
        for side in (0, 1)
    ]
    return printed(*paired(*sides))


def results() -> Iterator[tuple[str, str, str]]:
    """Yields page, printed figure and recomputed figure."""
    for figure in figures():
        again = recompute(figure)
        yield from ((page, figure.printed, again) for page in figure.pages.split())


def unlisted() -> list[str]:
    """Signed differences with an interval on a page that is in neither list."""
    listed = {(page, figure.printed) for figure in figures() for page in figure.pages.split()}
    listed |= {(page, text) for pages in MISSING.values() for page, texts in pages.items() for text in texts}
    pages = ["README", *DOCS, *(path.stem for path in sorted(FOLDER.glob("*.md")))]
    found = {(page, text) for page in pages for text in SIGNED.findall(text_of(page))}
    return sorted(f"{page}: {text}" for page, text in found - listed)


def absent() -> list[str]:
    """Listed figures that their page does not print."""
    listed = [(page, figure.printed) for figure in figures() for page in figure.pages.split()]
    listed += [(page, text) for pages in MISSING.values() for page, texts in pages.items() for text in texts]
    return [f"{page}: {text}" for page, text in listed if text not in text_of(page)]


def main() -> int:
    rows = [*results()]
    for page, text, again in rows:
        print(f"{page:28} {text:28} {again:28}{'' if text == again else ' DIFFERS'}")
    for reason, pages in MISSING.items():
        print(f"not recomputed, {reason}: {sum(map(len, pages.values()))} figures on {', '.join(pages)}")
    return int(any(text != again for _, text, again in rows))


if __name__ == "__main__":
    sys.exit(main())
