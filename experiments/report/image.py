"""A logged picture inside of the page: made small, with a text for those who do not see it."""

from __future__ import annotations

import base64
import io

from PIL import Image

from experiments.report.markup import Html, element

WIDTH, HEIGHT, COLOURS = 1000, 1800, 128
"""At most; high ones are traces and panels in rows, which a smaller height would make unreadable."""
LARGEST = 4_000_000
"""Bytes of a file that is opened at all."""
UNREADABLE = (OSError, SyntaxError, Image.DecompressionBombError)
"""What Pillow says of a file that is no PNG, or half of one."""


def image(content: bytes, *, alt: str) -> Html | None:
    """The ``img``; None for what is too large or is no PNG."""
    if len(content) > LARGEST:
        return None
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as opened:
            small = opened.convert("RGB")
    except UNREADABLE:
        return None
    small.thumbnail((WIDTH, HEIGHT))
    file = io.BytesIO()
    small.quantize(COLOURS).save(file, format="PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    return element("img", src=f"data:image/png;base64,{data}", alt=alt)
