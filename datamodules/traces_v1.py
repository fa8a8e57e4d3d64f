"""Form V1 of the published study: start and a visited array against an array visited later.

``state_actions`` (A, 2, 6): start and action; ``goals`` (A, 6). Every goal is reachable from the start, so the action
can be ignored at no cost: what the study found, and what the action probe measures.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from contrastive_reasoning.tasks.countdown.encoding import WIDTH
from contrastive_reasoning.tasks.countdown.triples import array_row
from datamodules.oracle_states import array_form
from datamodules.trace_arrays import TraceArrays

VERSION = 2


class TracesV1(TraceArrays):
    draw_row = array_row
    oracle_form = array_form

    def encode(self, rows: Int[Tensor, "A 18"]) -> tuple[Int[Tensor, "A 2 6"], Int[Tensor, "A 6"]]:
        return rows[:, : 2 * WIDTH].reshape(-1, 2, WIDTH), rows[:, 2 * WIDTH :]
