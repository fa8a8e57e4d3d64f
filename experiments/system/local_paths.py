"""Paths of a machine in a text that others will read."""

from __future__ import annotations

import re

LOCAL_PATH = re.compile(r"(?<![\w./:~-])(?:(?:sqlite|file):/*)?(?:~|/[A-Za-z_.])[\w.+@%-]*(?:/[\w.+@%-]+)*/?")


def without_paths(text: str) -> str:
    """The text with the paths of a machine cut down to their last part: ``/home/ann/models/x`` as ``…/x``."""
    return LOCAL_PATH.sub(lambda path: f"…/{path[0].rstrip('/').rpartition('/')[2]}", text)
