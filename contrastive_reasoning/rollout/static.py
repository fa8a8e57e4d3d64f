"""Decoding in static shapes, so that a CUDA graph can repeat the step: one launch for a token instead of a thousand.

    join → draw the first tokens → [ read → draw → record ] × N → find the rows that have ended → leave → join …

Lengths, positions and ends are tensors on the device, and only once in N tokens does the host read which rows have
ended. A row that has ended keeps its place until a quarter of the rows have; nothing computed for it is used. A graph
is captured anew when rows join or leave, and when the own tokens that are attended to have doubled. Completions are
those of ``ContinuousDecode``, up to the rounding of matrix products of another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from contrastive_reasoning.policies.decoder import Decoder
from contrastive_reasoning.rollout.continuous import ContinuousDecode
from contrastive_reasoning.rollout.sampling import draw

TOKENS_BETWEEN_CHECKS = 16
"""N: tokens of each row between two checks of which rows have ended."""
ENDED_SHARE = 1 / 4
"""The share of ended rows at which they leave."""
NARROWEST = 64
"""Fewest own tokens that a step attends to, with those that a row does not have yet."""


class StaticDecode(ContinuousDecode):
    """Decodes all rows from prompt to last token, with N tokens between two checks of which rows have ended.

    ``completions`` must be one token wider than the longest completion: a row that has ended draws into that place. On
    other devices than CUDA, and for a model without a ``Decoder`` or with frequencies that change with the length, the
    same steps run without a graph. Stop strings are found by the host, so with them N is 1.
    """

    def run(self, uniforms: Float[Tensor, "B T"]) -> None:
        rows, width = uniforms.shape
        self.uniforms = pad(uniforms, (0, 1))
        self.newest = torch.zeros(rows, dtype=torch.long, device=uniforms.device)
        self.alive, self.unread = torch.zeros(2, rows, dtype=torch.bool, device=uniforms.device)
        """Which rows continue, and whose newest token has not been read."""
        self.reported: set[int] = set()
        self.graphed = uniforms.is_cuda and isinstance(self.step, Decoder) and self.step.static
        self.repeat: Callable[[], None] = self._first
        steps = min(1 if self.ends.stops else TOKENS_BETWEEN_CHECKS, width - 1 + self.pooled)
        while self.running or self.schedule.waiting:
            self._draw_first(self._admit())
            self._attend_to(max(self.cache.filled) + steps)
            for _ in range(steps):
                self.repeat()
                self._stop()
            self._remove_ended()
        del self.repeat  # it refers to this decode, so the cache would stay until the next cyclic collection

    def _draw_first(self, joined: Sequence[int]) -> None:
        if not joined:
            return
        rows = torch.tensor(joined, device=self.newest.device)
        logits = torch.stack([self._logits_of_prompt(row) for row in joined])
        tokens, log_probs = draw(logits, self.uniforms[rows, 0], self.sampling)
        self.newest[rows] = tokens
        self.unread[rows] = True
        self.alive[rows] = self.completions.write(
            rows,
            0,
            tokens,
            log_probs,
            alive=torch.ones_like(rows, dtype=torch.bool),
            ended=self.ends.ended(joined, tokens),
            limits=self.requests.limits[rows // self.requests.group_size],
        )

    def _attend_to(self, tokens: int) -> None:
        """Makes the steps attend to at least this many own tokens of each row, if a row can have as many."""
        tokens = min(tokens, self.cache.limit)
        if tokens > self.width:
            self.width = min(max(tokens, 2 * self.width, NARROWEST), self.cache.limit)
            self.repeat = self._first

    def _changed(self) -> None:
        super()._changed()
        self.width = 0

    def _first(self) -> None:
        """Runs the step and captures it for the next ones."""
        self._step()  # also prepares what must exist before a capture: sums of states, casts of adapters
        self.repeat = self._captured() if self.graphed else self._step

    def _captured(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # Each graph has a pool of its own: the workspace of cuBLAS outlives a graph, and torch refuses the pool of one
        # that is gone. By default a call of another thread would end the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._step()
        return graph.replay

    def _step(self) -> None:
        """Reads the newest token of each row, draws the next one and records it if the row is alive.

        Only operations whose shapes do not depend on values, in place where the next step reads the result.
        """
        into, rows = self.completions, self.rows
        lengths, alive = into.lengths[rows], self.alive[rows]
        self.cache.advance_to(lengths, self.width)
        logits, states = self.step.read(self.newest[rows], self.starts + lengths - 1, self.cache)
        if self.pooled and states is not None:
            into.add_states(rows, states.where(self.unread[rows, None], 0))
        tokens, log_probs = draw(logits, self.uniforms[rows, lengths], self.sampling)
        ended = (tokens[:, None] == self.ends.tokens).any(1)
        self.newest[rows] = torch.where(alive, tokens, self.newest[rows])
        self.unread[rows] = alive
        self.alive[rows] = into.write(rows, lengths, tokens, log_probs, alive=alive, ended=ended, limits=self.limits)

    def _stop(self) -> None:
        """Ends the rows whose newest token completes a stop string."""
        if self.ends.stops is None:
            return
        written = self.rows[self.unread[self.rows]]
        found = self.ends.stops.completed(written.tolist(), self.newest[written].tolist())
        stopped = written[torch.tensor(found, dtype=torch.bool, device=written.device)]
        self.alive[stopped] = False
        self.completions.stopped[stopped] = True

    def _remove_ended(self) -> None:
        """Reports the rows that have ended, and removes them if there are many."""
        needed = self.alive | self.unread if self.pooled else self.alive
        state = torch.stack([self.completions.lengths[self.rows], needed[self.rows].long()]).tolist()
        self.cache.filled = state[0]
        gone = [place for place, still in enumerate(state[1]) if not still]
        ended = [self.running[place] for place in gone]
        self.notify([row for row in ended if row not in self.reported])
        self.reported.update(ended)
        if gone and len(gone) >= ENDED_SHARE * len(self.running):
            self.running = [self.running[place] for place in self.cache.leave(gone)]
            if self.running:
                self._changed()
