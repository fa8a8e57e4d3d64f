"""An unbounded buffer of triples cut from written searches: a critic that learns online draws its batches from it.

A search is stored once, and a triple as three whole numbers: the state of an action is all lines before it, and a text
for each state would be as many copies of a search as it has actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from contrastive_reasoning.tasks.countdown.indented import LineTriple


class SearchTriple(NamedTuple):
    """A line of a search after others, and one that was written after it."""

    state: str
    action: str
    goal: str
    answer: str
    """Of the problem that was searched."""


class TripleBuffer:
    """Triples in the order in which they were added."""

    def __init__(self) -> None:
        self._searches: list[tuple[Sequence[str], str]] = []
        """Lines and answer."""
        self._triples: list[tuple[int, int, int]] = []
        """Search, action, goal."""

    def __len__(self) -> int:
        return len(self._triples)

    def add(self, lines: Sequence[str], answer: str, triples: Sequence[LineTriple]) -> None:
        """Those of one search; one without triples is not stored."""
        if triples:
            self._triples += [(len(self._searches), action, goal) for action, goal in triples]
            self._searches.append((lines, answer))

    def draw(self, count: int, rng: np.random.Generator) -> list[SearchTriple]:
        """``count`` different triples, or all in a drawn order where there are fewer."""
        places = rng.choice(len(self), min(count, len(self)), replace=False) if len(self) else []
        return [self._triple(*self._triples[place]) for place in places]

    def state_dict(self) -> dict[str, Any]:
        """Searches and answers as text, and an (N, 3) tensor of triples."""
        return {
            "searches": ["\n".join(lines) for lines, _ in self._searches],
            "answers": [answer for _, answer in self._searches],
            "triples": torch.tensor(self._triples, dtype=torch.long).reshape(-1, 3),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        texts = zip(state["searches"], state["answers"], strict=True)
        self._searches = [(text.split("\n"), answer) for text, answer in texts]
        self._triples = [(search, action, goal) for search, action, goal in state["triples"].tolist()]

    def _triple(self, search: int, action: int, goal: int) -> SearchTriple:
        lines, answer = self._searches[search]
        return SearchTriple("\n".join(lines[:action]), lines[action], lines[goal], answer)
