"""Form V2 of the published study: a visited array against the problem's fixed target.

``state_actions`` (A, 6); ``goals`` (A,). The search visits failed branches too, so many positives are states from which
the target is out of reach: what a trace says of a state is that it was visited on the way, no more.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from contrastive_reasoning.tasks.countdown.encoding import WIDTH
from contrastive_reasoning.tasks.countdown.triples import target_row
from datamodules.oracle_states import target_form
from datamodules.trace_arrays import TraceArrays

VERSION = 2


class TracesV2(TraceArrays):
    draw_row = target_row
    oracle_form = target_form

    def encode(self, rows: Int[Tensor, "A 7"]) -> tuple[Int[Tensor, "A 6"], Int[Tensor, " A"]]:
        return rows[:, :WIDTH], rows[:, WIDTH]
