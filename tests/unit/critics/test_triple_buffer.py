"""The unbounded buffer of triples: what comes out is what went in, also after a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from contrastive_reasoning.critics.triple_buffer import SearchTriple, TripleBuffer
from contrastive_reasoning.tasks.countdown.indented import LineTriple

LINES = ["|- a", " |- b \udce9", "  |- c", " |- d"]


def filled() -> TripleBuffer:
    buffer = TripleBuffer()
    buffer.add(LINES, "46", [LineTriple(1, 2)])
    buffer.add(["|- without"], "7", [])
    buffer.add([*LINES, "|- e"], "12", [LineTriple(1, 2), LineTriple(2, 3), LineTriple(2, 4)])
    return buffer


def drawn(buffer: TripleBuffer, count: int, seed: int = 0) -> list[SearchTriple]:
    return buffer.draw(count, np.random.default_rng(seed))


def test_triples_are_lines_with_the_lines_before_them() -> None:
    assert len(filled()) == 4
    assert set(drawn(filled(), 16)) == {
        SearchTriple("|- a", " |- b \udce9", "  |- c", "46"),
        SearchTriple("|- a", " |- b \udce9", "  |- c", "12"),
        SearchTriple("|- a\n |- b \udce9", "  |- c", " |- d", "12"),
        SearchTriple("|- a\n |- b \udce9", "  |- c", "|- e", "12"),
    }
    assert drawn(TripleBuffer(), 16) == []


def test_a_draw_repeats_nothing_and_each_triple_comes_equally_often() -> None:
    buffer = filled()
    counts = dict.fromkeys(drawn(buffer, 4), 0)
    for seed in range(2000):
        pair = drawn(buffer, 2, seed)
        assert len(set(pair)) == 2
        for triple in pair:
            counts[triple] += 1
    assert all(abs(count - 1000) < 120 for count in counts.values())  # over five standard deviations


def test_a_loaded_buffer_draws_the_same(tmp_path: Path) -> None:
    torch.save(filled().state_dict(), tmp_path / "buffer.pt")
    loaded = TripleBuffer()
    loaded.load_state_dict(torch.load(tmp_path / "buffer.pt", weights_only=True))
    for buffer in (loaded, same := filled()):
        buffer.add(LINES, "9", [LineTriple(2, 3)])
    assert drawn(loaded, 3, seed=5) == drawn(same, 3, seed=5)
    empty = TripleBuffer()
    empty.load_state_dict(TripleBuffer().state_dict())
    assert len(empty) == 0
