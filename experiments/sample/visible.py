"""Text that a model wrote, for a terminal: nothing in it moves the cursor, changes colours or turns the line round."""

from __future__ import annotations

import unicodedata

from contrastive_reasoning.rollout.spans import readable

KEPT = "\n\t"


def visible(text: str) -> str:
    r"""``text`` with every sign that cannot be seen written as Python would, ``\x1b``; line ends and tabs stay."""
    return "".join(sign if _seen(sign) else sign.encode("unicode_escape").decode() for sign in readable(text))


def _seen(sign: str) -> bool:
    return sign in KEPT or unicodedata.category(sign)[0] != "C"
