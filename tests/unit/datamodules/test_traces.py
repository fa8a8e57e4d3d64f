from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from contrastive_reasoning.tasks.countdown import ProblemSpace, problem_key, split_of
from contrastive_reasoning.tasks.countdown.triples import array_row, target_row
from datamodules.oracle_states import held_out_states
from datamodules.traces import (
    TracesText,
    TracesV1,
    TracesV2,
    batch_rows,
    count_drawn,
    shown_numbers,
    states_of,
    triple_table,
)
from tests.unit.datamodules.kit import countdown

SPACE = ProblemSpace(counts=[4], number_range=[1, 49], target_range=[10, 50], max_search_lines=None)
SMALL = ProblemSpace(counts=[3], number_range=[1, 9], target_range=[10, 20], max_search_lines=None)
TASK = countdown()
TARGETS = partial(target_row, numbers_left=(2, 1))


def arrays(kind: type[TracesV1] | type[TracesV2], **changes: Any) -> TracesV1 | TracesV2:
    rows = {"trajectories": 40, "triples_each": 3, "mask_same_goal": False, "batch_size": 8, "validation_batches": 1}
    sizes = {"numbers_left": (3, 2)} if kind is TracesV2 else {}
    more = {"oracle_batch_size": 1000, "search_workers": 0, "workers": 0, "seed": 0}
    return kind(task=TASK, space=SPACE, **rows | sizes | more | changes)  # pyright: ignore


class Letters:
    """A text reader with one token per character, for the first 20 characters."""

    style = "annotated"
    goal_text = "target {target}"

    def tokenize(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        rows = [[ord(letter) for letter in text[:20].ljust(20)] for text in texts]
        return {"input_ids": torch.tensor(rows), "attention_mask": torch.ones(len(rows), 20, dtype=torch.long)}


def text(*, mask_same_goal: bool = False) -> TracesText:
    sizes = {"batch_size": 4, "validation_batches": 1, "oracle_problems": 2, "oracle_batch_size": 8, "workers": 0}
    data = TracesText(task=TASK, space=SPACE, discount=1.0, mask_same_goal=mask_same_goal, seed=0, **sizes)
    data.reader = Letters()
    return data


def test_batch_rows_contain_each_trajectory_once_per_epoch() -> None:
    table = np.arange(10)[:, None, None].repeat(3, axis=1)  # row i belongs to trajectory i
    epochs = [
        np.concatenate([batch_rows(table, 2 * epoch + k, batch_size=5, seed=0) for k in (0, 1)]) for epoch in range(3)
    ]
    for rows in epochs:
        assert sorted(rows[:, 0].tolist()) == list(range(10))
    assert not np.array_equal(epochs[0], epochs[1])
    assert np.array_equal(batch_rows(table, 4, batch_size=5, seed=0), batch_rows(table, 4, batch_size=5, seed=0))
    turns = np.arange(3)[None, :, None].repeat(4, axis=0)  # column t holds t
    assert [set(batch_rows(turns, k, batch_size=4, seed=0)[:, 0].tolist()) for k in range(4)] == [{0}, {1}, {2}, {0}]


def test_count_drawn_matches_the_rows_of_the_batches() -> None:
    trajectories, each, size = 11, 3, 4
    rows = np.arange(trajectories * each).reshape(trajectories, each, 1)  # row r belongs to trajectory r // 3
    for batches in range(12):
        drawn = [row for number in range(batches) for row in batch_rows(rows, number, batch_size=size, seed=5)[:, 0]]
        expected = {"trajectories": len({row // each for row in drawn}), "triples": len(set(drawn))}
        assert count_drawn(trajectories, each, batches, batch_size=size, seed=5) == expected
    data = arrays(TracesV2)
    assert data.count_drawn(0) == {"trajectories": 0, "triples": 0}
    assert data.count_drawn(4) == {"trajectories": 32, "triples": 32}
    assert data.count_drawn(8) == {"trajectories": 32, "triples": 64}, "those that validate are not counted"


def test_triple_table_does_not_depend_on_workers() -> None:
    counts: list[int] = []
    settings: dict[str, Any] = {"seed": 0, "exclude": (), "held_out": (), "draw_row": TARGETS}
    table = triple_table(SMALL, trajectories=30, triples_each=2, workers=0, progress=counts.append, **settings)
    assert table.shape == (30, 2, 7)
    assert counts[-1] == 30
    assert (table[:, 0, 6] == table[:, 1, 6]).all()
    state = torch.get_rng_state()
    assert np.array_equal(table, triple_table(SMALL, trajectories=30, triples_each=2, workers=1, **settings))
    assert torch.equal(state, torch.get_rng_state()), "nobody else's draws depend on it"
    with pytest.raises(ValueError, match=r"\d+ .*100000"):
        triple_table(SMALL, trajectories=100_000, triples_each=1, workers=0, **settings)


def test_triple_table_contains_no_held_out_states() -> None:

    def states(kind: Any, held_out: Collection[tuple[int, ...]]) -> set[tuple[int, ...]]:
        table = triple_table(
            SMALL, trajectories=40, triples_each=5, seed=0, exclude=(), held_out=held_out, draw_row=kind, workers=0
        )
        return {state for row in table.reshape(-1, table.shape[2]).tolist() for state in states_of(row)}

    for kind in (TARGETS, array_row):
        unwanted = set(sorted(state for state in states(kind, ()) if len(state) > 1)[::2])
        assert len(unwanted) > 10
        assert not states(kind, unwanted) & unwanted


@pytest.mark.parametrize("kind", [TracesV1, TracesV2])
def test_trace_arrays_contain_no_evaluation_states(kind: type[TracesV1] | type[TracesV2]) -> None:
    data = arrays(kind, trajectories=300, triples_each=5)
    data.setup()
    assert data.table is not None
    shown = {state for row in data.table.reshape(-1, data.table.shape[2]).tolist() for state in states_of(row)}
    assert not shown & held_out_states(TASK)


def test_v1_batches_contain_arrays_and_v2_batches_states_and_targets() -> None:
    batch = arrays(TracesV1).batch(0)
    assert batch.state_actions.shape == (8, 2, 6)
    assert batch.goals.shape == (8, 6)
    assert torch.equal(batch.positive, torch.eye(8, dtype=torch.bool))
    assert batch.candidate.all()
    starts = {tuple(row) for row in batch.state_actions[:, 0].tolist()}
    assert len(starts) == 8, "one triple a trajectory"
    assert (batch.state_actions[:, 1, 3] == -1).all(), "an action leaves three numbers at most"
    targets = arrays(TracesV2, mask_same_goal=True).batch(0)
    assert targets.state_actions.shape == (8, 6)
    assert ((targets.goals >= 10) & (targets.goals <= 50)).all()
    assert torch.equal(targets.candidate, targets.positive | (targets.goals[:, None] != targets.goals[None]))
    left = (targets.state_actions >= 0).sum(dim=1)
    assert set(left.tolist()) == {2, 3}, "as the paper's arrays"


@pytest.mark.parametrize(
    ("name", "value"), [*[("numbers_left", sizes) for sizes in ([], [4], [3, 0])], ("trajectories", 15)]
)
def test_v2_settings_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        arrays(TracesV2, **{name: value})


def test_array_batches_are_reproducible_and_separate_from_validation() -> None:
    one, same, other = arrays(TracesV2).batch(7), arrays(TracesV2).batch(7), arrays(TracesV2, seed=1).batch(7)
    assert torch.equal(one.state_actions, same.state_actions)
    assert not torch.equal(one.state_actions, other.state_actions)
    data = arrays(TracesV2)
    data.setup()
    assert data.table is not None
    assert len(data.table) == 40
    validation = {tuple(row) for row in data.table[:8].reshape(-1, 7).tolist()}
    for number in range(12):
        batch = data.batch(number)
        rows = torch.cat([batch.state_actions, batch.goals[:, None]], dim=1)
        shared = {tuple(row) for row in rows.tolist()} & validation
        assert len(shared) <= 1, "a late state may coincide, but no trajectory"


def test_text_triples_come_from_different_training_problems() -> None:
    data = text()
    triples = data.triples(2, split="train")
    problems = [triple.state + triple.action for triple in triples]
    openings = {problem.splitlines()[1].split(" ###")[0] for problem in problems if "\n" in problem}
    assert len(openings) == 4
    for opening in openings:
        numbers, target = opening.removeprefix("Initial number set: ").split(", target: ")
        key = problem_key([int(number) for number in numbers.strip("[]").split(",")], int(target))
        assert split_of(key) == "train"
    assert [triple.goal for triple in triples] == [triple.goal for triple in text().triples(2, split="train")]
    assert triples != data.triples(3, split="train")


def test_text_triples_contain_no_evaluation_states() -> None:
    held_out = held_out_states(TASK)
    shown_states: set[tuple[int, ...]] = set()
    for number in range(20):
        for triple in text().triples(number, split="train"):
            lists = re.findall(r"\[([\d, ]+)\]", triple.action + triple.goal)
            shown_states |= {tuple(sorted(int(n) for n in numbers.split(","))) for numbers in lists}
            numbers = (triple.state + triple.action).split("Initial number set: [")[1].split("]")[0]
            assert tuple(sorted(int(n) for n in numbers.split(","))) not in held_out
    assert len(shown_states) > 100
    assert not shown_states & held_out
    otherwise = text()
    otherwise.__dict__["_held_out"] = frozenset()
    triples = [triple for number in range(20) for triple in otherwise.triples(number, split="train")]
    assert any(shown_numbers(triple) & held_out for triple in triples)


def test_text_batches_contain_tokens_of_the_reader() -> None:
    data = text(mask_same_goal=True)
    batch = data.batch(0)
    assert batch.state_actions["input_ids"].shape == (4, 20)
    assert batch.positive.diagonal().all()
    contrastive, oracle = data.val_dataloader()
    assert len(list(contrastive)) == 1
    assert sum(len(batch.label) for batch in oracle) == 16
    data.reader = None
    with pytest.raises(ValueError, match="tokenizer"):
        data.batch(0)
