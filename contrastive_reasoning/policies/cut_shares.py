"""What lies in each rank's share where all parameters in a row are cut into even ones, as ZeRO's stages 1 and 2 do.

The cuts go through parameters. At stage 2 a rank keeps the gradient of each that it has a part of, and keeps it whole:

    rank 0  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┊░░░░░
    rank 1                 ▒▒▒▒▒▒▒┊▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
            └ embedding ──┘└ a matrix ─┘└ others ─────┘

That is little beside a share of many matrices, and much where an embedding is larger than a share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def most_in_a_share(sizes: Sequence[tuple[int, int]], ranks: int) -> int:
    """Bytes of all parameters, (numbers, bytes together) each, that a rank has part of: of the rank with most.

    0 without parameters.
    """
    share = 2 * -(-sum(count for count, _ in sizes) // (2 * ranks))  # DeepSpeed's are even
    ends = list(accumulate(count for count, _ in sizes))
    spans = [(end - count, end, held) for end, (count, held) in zip(ends, sizes, strict=True)]
    firsts = [rank * share for rank in range(ranks)]
    return max(sum(held for start, end, held in spans if start < first + share and end > first) for first in firsts)
