"""HTML from nested calls. Whatever is not markup already is escaped on its way in: model text and names are data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

VOID = ("img", "meta")
"""Elements without an end."""
INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What no page shows, or what reorders a line: written as its code."""


class Html(str):
    """Markup that is done."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str) -> Html:
    """``<name attributes>children</name>``; ``class_`` is ``class``."""
    given = "".join(f' {key.rstrip("_")}="{escaped(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Html:
    """Several pieces as one."""
    return Html("".join(child if isinstance(child, Html) else escaped(child) for child in children))


def escaped(text: str) -> Html:
    """A text as a page shows it."""
    return Html(escape(INVISIBLE.sub(lambda sign: f"\\x{ord(sign[0]):02x}", text)))


def section(title: str, *children: str) -> Html:
    """A part of the page with its heading; nothing where it has no content."""
    content = joined(children)
    return element("section", element("h2", title), content) if content else Html("")


def table(head: Sequence[str], body: Iterable[Sequence[str]], *, left: Sequence[int] = (0,), class_: str = "") -> Html:
    """A table that scrolls where it is wider than the page; ``left`` are the columns of words."""

    def line(cells: Sequence[str], tag: str) -> Html:
        return element(
            "tr",
            *(element(tag, cell, class_="word" if place in left else "number") for place, cell in enumerate(cells)),
        )

    rows = (line(cells, "td") for cells in body)
    whole = element("table", element("thead", line(head, "th")), element("tbody", *rows), class_=class_)
    return element("div", whole, class_="scroll")
