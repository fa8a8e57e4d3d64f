"""What the two numeric forms of search traces share: the table, its split into training and validation, the batches."""

from __future__ import annotations

from abc import ABC, abstractmethod

import lightning as L
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor
from torch.utils.data import DataLoader

from contrastive_reasoning.critics.base import CriticBatch, CriticOracleBatch
from contrastive_reasoning.progress import phase_of
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from datamodules.batch_stream import training_loader
from datamodules.countdown_traces import DrawRow, batch_rows, triple_table
from datamodules.oracle_states import Encoding, held_out_states, oracle_batches


class TraceArrays(L.LightningDataModule, ABC):
    """Batches of ``batch_size`` triples from different trajectories; the diagonal is positive.

    Args:
        task: the keys of its validation and test problems never occur in the trajectories. Their states at the start,
            and the fixed oracle states, never stand in a triple, whatever the target.
        space: what the trajectories' problems are drawn from; only those of the training split are.
        trajectories: how many, all different problems; the first ``validation_batches · batch_size`` validate.
        triples_each: drawn from one trajectory.
        mask_same_goal: whether pairs whose goals are equal stop counting as negatives.
        batch_size: A.
        validation_batches: for the contrastive metrics.
        oracle_batch_size: of the fixed held-out states.
        search_workers: processes that build the table, once.
        workers: loader processes.
        seed: of all draws.
    """

    draw_row: DrawRow
    """One triple as integers."""
    oracle_form: Encoding

    def __init__(
        self,
        *,
        task: CountdownTask,
        space: ProblemSpace,
        trajectories: int,
        triples_each: int,
        mask_same_goal: bool,
        batch_size: int,
        validation_batches: int,
        oracle_batch_size: int,
        search_workers: int,
        workers: int,
        seed: int,
    ) -> None:
        super().__init__()
        held_back = validation_batches * batch_size
        if trajectories < held_back + batch_size:
            raise ValueError(
                f"trajectories must be at least {held_back + batch_size}, a training batch of {batch_size} after "
                f"{validation_batches} for validation, got {trajectories}"
            )
        self.task = task
        self.space = space
        self.trajectories = trajectories
        self.triples_each = triples_each
        self.mask_same_goal = mask_same_goal
        self.batch_size = batch_size
        self.validation_batches = validation_batches
        self.oracle_batch_size = oracle_batch_size
        self.search_workers = search_workers
        self.workers = workers
        self.seed = seed
        self.table: Int[ndarray, "N T W"] | None = None

    @abstractmethod
    def encode(self, rows: Int[Tensor, "A W"]) -> tuple[Tensor, Tensor]:
        """Rows of the table to ``(state_actions, goals)``."""

    def setup(self, stage: str | None = None) -> None:
        """Searches all trajectories, once."""
        if self.table is None:
            judged = {problem.key for split in ("validation", "test") for problem in self.task.problems(split)}
            with phase_of(self.trainer, "searching", unit="trajectories", total=self.trajectories) as phase:
                self.table = triple_table(
                    self.space,
                    trajectories=self.trajectories,
                    triples_each=self.triples_each,
                    seed=self.seed,
                    exclude=judged | self.task.reserved_keys(),
                    held_out=held_out_states(self.task),
                    draw_row=type(self).draw_row,
                    workers=self.search_workers,
                    progress=phase.move,
                )

    def batch(self, number: int, *, validation: bool = False) -> CriticBatch:
        """Batch ``number`` of the training or of the validation trajectories: a function of it and the seed."""
        self.setup()
        assert self.table is not None
        held_back = self.validation_batches * self.batch_size
        table = self.table[:held_back] if validation else self.table[held_back:]
        rows = torch.from_numpy(batch_rows(table, number, batch_size=self.batch_size, seed=self.seed))
        state_actions, goals = self.encode(rows)
        positive = torch.eye(len(rows), dtype=torch.bool)
        candidate = positive | ~same_goal(goals) if self.mask_same_goal else torch.ones_like(positive)
        return CriticBatch(state_actions=state_actions, goals=goals, positive=positive, candidate=candidate)

    def train_dataloader(self) -> DataLoader[CriticBatch]:
        return training_loader(self.batch, trainer=self.trainer, workers=self.workers)

    def val_dataloader(self) -> list[DataLoader[CriticBatch] | DataLoader[CriticOracleBatch]]:
        batches = [self.batch(number, validation=True) for number in range(self.validation_batches)]
        oracle = oracle_batches(type(self).oracle_form, batch_size=self.oracle_batch_size)
        return [DataLoader(batches, batch_size=None), DataLoader(oracle, batch_size=None)]  # pyright: ignore


def same_goal(goals: Int[Tensor, "A ..."]) -> Bool[Tensor, "A A"]:
    """Whether two rows ask for the same: equal targets, or equal arrays."""
    flat = goals.reshape(len(goals), -1)
    return (flat[:, None] == flat[None]).all(dim=2)
