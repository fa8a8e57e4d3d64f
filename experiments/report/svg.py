"""Pictures inside of the page."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from experiments.report.markup import Html, element

QUIET: Any = {"svg.fonttype": "none", "svg.hashsalt": "report", "font.family": "sans-serif"}
"""Text stays text, and the same picture makes the same file."""


def quiet() -> AbstractContextManager[None]:
    """What a picture is both drawn and written under."""
    return matplotlib.rc_context(QUIET)


def as_svg(figure: Figure, *, said: str) -> Html:
    """The picture alone, without the head of a file; ``said`` is what it is, for those who do not see it."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    return element("div", Html(text[text.index("<svg") :]), role="img", **{"aria-label": said})
