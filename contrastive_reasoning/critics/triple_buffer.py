"""An unbounded buffer of triples from written searches, from which a critic that learns online draws its batches.

A search is stored once, and a triple as three integers. The state of an action is all lines before it, so storing a
text per state would copy the search once per action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from contrastive_reasoning.tasks.countdown.indented import LineTriple


class SearchTriple(NamedTuple):
    """A line of a search (``action``), the lines before it (``state``) and a later line (``goal``)."""

    state: str
    action: str
    goal: str
    answer: str
    """The answer of the searched problem."""


class TripleBuffer:
    """Triples in the order in which they were added."""

    def __init__(self) -> None:
        self._searches: list[tuple[Sequence[str], str]] = []
        """(lines, answer) of each search."""
        self._triples: list[tuple[int, int, int]] = []
        """(search, action, goal) indices of each triple."""

    def __len__(self) -> int:
        return len(self._triples)

    def add(self, lines: Sequence[str], answer: str, triples: Sequence[LineTriple]) -> None:
        """Adds the triples of one search; a search without triples is not stored."""
        if triples:
            self._triples += [(len(self._searches), action, goal) for action, goal in triples]
            self._searches.append((lines, answer))

    def draw(self, count: int, rng: np.random.Generator) -> list[SearchTriple]:
        """Draws ``count`` different triples, or all in random order if there are fewer."""
        places = rng.choice(len(self), min(count, len(self)), replace=False)
        return [self._triple(*self._triples[place]) for place in places]

    def state_dict(self) -> dict[str, Any]:
        """Returns searches and answers as text, and an (N, 3) tensor of triples."""
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
