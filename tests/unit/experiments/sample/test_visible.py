from __future__ import annotations

import pytest

from experiments.sample.visible import visible


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("3 × 5 = 15 → é 漢 🙂\n\tnext", "3 × 5 = 15 → é 漢 🙂\n\tnext"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("wrong\rright\b\x7f", r"wrong\rright\x08\x7f"),
        ("\u202eright to left\u2066", r"\u202eright to left\u2066"),
        ("a\u200bb\ufeff\U000e0041", r"a\u200bb\ufeff\U000e0041"),
        ("half \udce2\udc82", "half �"),
        ("[bold]markup[/bold]", "[bold]markup[/bold]"),
    ],
)
def test_what_cannot_be_seen_is_spelled(written: str, seen: str) -> None:
    assert visible(written) == seen
