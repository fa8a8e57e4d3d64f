"""The page around the sections: one file that fetches nothing, and is forbidden to."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.report.markup import Html, element, joined
from experiments.report.style import CSS

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""For the browser: no script, and nothing from outside of the file."""


def page(title: str, sections: Iterable[Html]) -> str:
    """A whole document."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", name="viewport", content="width=device-width"),
        element("title", title),
        element("style", Html(CSS)),
    )
    body = element("body", element("main", element("h1", title), joined(sections)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"
