"""TripleBuffer, which is unbounded: drawn triples equal the added ones, also after a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from contrastive_reasoning.critics.triple_buffer import SearchTriple, TripleBuffer
from contrastive_reasoning.tasks.countdown.indented import LineTriple

LINES = ["|- a", " |- b \udce9", "  |- c", " |- d"]


def fill_buffer() -> TripleBuffer:
    buffer = TripleBuffer()
    buffer.add(LINES, "46", [LineTriple(1, 2)])
    buffer.add(["|- without"], "7", [])
    buffer.add([*LINES, "|- e"], "12", [LineTriple(1, 2), LineTriple(2, 3), LineTriple(2, 4)])
    return buffer


def draw(buffer: TripleBuffer, count: int, seed: int = 0) -> list[SearchTriple]:
    return buffer.draw(count, np.random.default_rng(seed))


def test_triples_contain_lines_and_all_lines_before_them() -> None:
    assert len(fill_buffer()) == 4
    assert set(draw(fill_buffer(), 16)) == {
        SearchTriple("|- a", " |- b \udce9", "  |- c", "46"),
        SearchTriple("|- a", " |- b \udce9", "  |- c", "12"),
        SearchTriple("|- a\n |- b \udce9", "  |- c", " |- d", "12"),
        SearchTriple("|- a\n |- b \udce9", "  |- c", "|- e", "12"),
    }
    assert draw(TripleBuffer(), 16) == []


def test_draw_is_uniform_without_repeats() -> None:
    buffer = fill_buffer()
    counts = dict.fromkeys(draw(buffer, 4), 0)
    for seed in range(2000):
        pair = draw(buffer, 2, seed)
        assert len(set(pair)) == 2
        for triple in pair:
            counts[triple] += 1
    assert all(abs(count - 1000) < 120 for count in counts.values())  # over five standard deviations


def test_loaded_buffer_draws_same_triples(tmp_path: Path) -> None:
    torch.save(fill_buffer().state_dict(), tmp_path / "buffer.pt")
    loaded = TripleBuffer()
    loaded.load_state_dict(torch.load(tmp_path / "buffer.pt", weights_only=True))
    for buffer in (loaded, same := fill_buffer()):
        buffer.add(LINES, "9", [LineTriple(2, 3)])
    assert draw(loaded, 3, seed=5) == draw(same, 3, seed=5)
    empty = TripleBuffer()
    empty.load_state_dict(TripleBuffer().state_dict())
    assert len(empty) == 0
