"""Where the labels of points may stand so that none covers a point or another label: one after another, the cheapest.

A place costs 10 for each label or point that it covers, 1 for each bar through it, 20 outside the frame, and a little
for its distance; the first of equally cheap ones is taken, so the same points always get the same places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

ANGLES = [math.pi / 4 + turn * math.pi / 6 for turn in range(12)]
DISTANCES = (9.0, 13.0, 18.0, 24.0, 31.0, 39.0, 48.0)
OFFSETS = [(r * math.cos(angle), r * math.sin(angle)) for r in DISTANCES for angle in ANGLES]
"""The places that are tried, the nearest first, of those the one above and to the right."""
COVERED, CROSSED, OUTSIDE, FAR = 10.0, 1.0, 20.0, 0.05


class Box(NamedTuple):
    """An upright rectangle, in the picture's own length."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        """Whether they share more than an edge."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def wider(self, by: float) -> Box:
        """Half of ``by`` on every side."""
        return Box(self.left - by / 2, self.bottom - by / 2, self.right + by / 2, self.top + by / 2)

    def within(self, other: Box) -> bool:
        return (
            self.left >= other.left
            and self.bottom >= other.bottom
            and self.right <= other.right
            and self.top <= other.top
        )


def around(x: float, y: float, width: float, height: float) -> Box:
    """The box with its middle at (x, y)."""
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def places(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    *,
    marker: float,
    bars: Sequence[Box],
    frame: Box,
) -> list[tuple[float, float]]:
    """The offset of each label's middle from its point.

    Args:
        points: in the order in which labels are placed.
        sizes: of the labels, width and height.
        marker: width of a point.
        bars: lines that a label should rather not stand on, as thin boxes.
        frame: what labels should stay within.
    """
    taken, found = [around(x, y, marker, marker) for x, y in points], []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        boxes = {offset: around(x + offset[0], y + offset[1], width, height) for offset in OFFSETS}
        best = min(boxes, key=lambda offset: _cost(boxes[offset], taken, bars, frame) + FAR * math.hypot(*offset))
        taken.append(boxes[best])
        found.append(best)
    return found


def _cost(box: Box, taken: Sequence[Box], bars: Sequence[Box], frame: Box) -> float:
    covered, crossed = (sum(box.meets(other) for other in others) for others in (taken, bars))
    return COVERED * covered + CROSSED * crossed + (0.0 if box.within(frame) else OUTSIDE)
