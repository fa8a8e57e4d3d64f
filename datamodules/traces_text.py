"""The text form of the published study: a trace up to a line against a later line, as the critic's tokens.

``state_actions`` is the prefix with its line, ``goals`` the later line, both as the critic's ``tokenize`` gives them:
the tokenizer has one home. Trajectories are drawn and written when needed: 100,000 of them would be gigabytes of text.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from contrastive_reasoning.critics.base import CriticBatch, CriticOracleBatch
from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw_distinct
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.trace import path_text, search_trace
from contrastive_reasoning.tasks.countdown.triples import TextTriple, number_lists, text_triple
from datamodules.batch_stream import training_loader
from datamodules.oracle_states import OracleState, held_out_states, oracle_batches
from datamodules.trace_arrays import REDRAWS


class Reader(Protocol):
    """What a text critic offers to the data."""

    style: str
    goal_text: str

    def tokenize(self, texts: Sequence[str]) -> Mapping[str, Tensor]: ...


@dataclass(kw_only=True, eq=False, repr=False)
class TracesText(L.LightningDataModule):
    """Batches of ``batch_size`` text triples from different trajectories; the diagonal is positive."""

    task: CountdownTask
    """The keys of its validation and test problems never occur in the trajectories. Their states at the start, and the
    fixed oracle states, begin no trajectory and stand in no action and no goal, whatever the target.
    """
    space: ProblemSpace
    """What the trajectories' problems are drawn from."""
    discount: float
    """Γ of the later line; 1 for any later line."""
    mask_same_goal: bool
    """Whether pairs whose goal lines are equal stop counting as negatives."""
    batch_size: int
    """A, the anchors of a batch."""
    validation_batches: int
    """For the contrastive metrics, from problems of the validation split."""
    oracle_problems: int
    """How many of the fixed held-out problems judge the critic; reading text is slow."""
    oracle_batch_size: int
    """Of their states."""
    workers: int
    """Loader processes, which search, write and tokenize."""
    seed: int
    """Of all draws."""

    def __post_init__(self) -> None:
        super().__init__()
        self.reader: Reader | None = None

    def setup(self, stage: str | None = None) -> None:
        """Takes tokenizer and style from the critic that is about to be trained.

        Raises:
            ValueError: if that critic does not read text.
        """
        if self.reader is None and self.trainer is not None:
            critic = getattr(self.trainer.lightning_module, "critic", None)
            if not hasattr(critic, "tokenize"):
                raise ValueError(f"datamodule=traces_text needs critic=text, got the critic {type(critic).__name__}")
            self.reader = critic  # pyright: ignore[reportAttributeAccessIssue]

    def triples(self, number: int, *, split: Split) -> list[TextTriple]:
        """The triples of batch ``number``: a function of it, the split and the seed."""
        train = split == "train"
        exclude, held_out = (self._judged, self._held_out) if train else (frozenset(), frozenset())
        problems = draw_distinct(self.space, seed=(self.seed << 40) + number, split=split, exclude=exclude)
        rng = random.Random(f"{self.seed}/text triples/{split}/{number}")
        fresh = (pair for pair in problems if tuple(sorted(pair[0])) not in held_out)
        drawn = (self._triple(*pair, held_out=held_out, rng=rng) for pair in fresh)
        return list(islice((triple for triple in drawn if triple is not None), self.batch_size))

    def _triple(
        self, numbers: tuple[int, ...], target: int, *, held_out: frozenset[tuple[int, ...]], rng: random.Random
    ) -> TextTriple | None:
        """A triple of the problem's trace that shows no held-out state; None where none is found."""
        style = self._reader().style
        trace = search_trace(numbers, target, style=style).text
        tries = (text_triple(trace, style=style, discount=self.discount, rng=rng) for _ in range(REDRAWS))
        return next((triple for triple in tries if not shown(triple) & held_out), None)

    def batch(self, number: int, *, split: Split = "train") -> CriticBatch:
        """Batch ``number`` as tokens."""
        triples = self.triples(number, split=split)
        goals = [triple.goal for triple in triples]
        positive = torch.eye(len(triples), dtype=torch.bool)
        same = torch.tensor([[goal == other for other in goals] for goal in goals])
        return CriticBatch(
            state_actions=self._reader().tokenize([triple.state + triple.action for triple in triples]),
            goals=self._reader().tokenize(goals),
            positive=positive,
            candidate=positive | ~same if self.mask_same_goal else torch.ones_like(positive),
        )

    def train_dataloader(self) -> DataLoader[CriticBatch]:
        return training_loader(self.batch, trainer=self.trainer, workers=self.workers)

    def val_dataloader(self) -> list[DataLoader[CriticBatch] | DataLoader[CriticOracleBatch]]:
        batches = [self.batch(number, split="validation") for number in range(self.validation_batches)]
        oracle = oracle_batches(self._oracle_form, batch_size=self.oracle_batch_size, problems=self.oracle_problems)
        return [DataLoader(batches, batch_size=None), DataLoader(oracle, batch_size=None)]  # pyright: ignore

    def _oracle_form(self, states: list[OracleState]) -> tuple[Any, Any]:
        texts = [path_text(state.numbers, state.target, state.moves, style=self._reader().style) for state in states]
        goals = [self._reader().goal_text.replace("{target}", str(state.target)) for state in states]
        return self._reader().tokenize(texts), self._reader().tokenize(goals)

    def _reader(self) -> Reader:
        if self.reader is None:
            raise ValueError("text traces have no tokenizer before a trainer with a text critic has set them up")
        return self.reader

    @cached_property
    def _judged(self) -> frozenset[str]:
        judged = [problem.key for split in ("validation", "test") for problem in self.task.problems(split)]
        return self.task.reserved_keys() | frozenset(judged)

    @cached_property
    def _held_out(self) -> frozenset[tuple[int, ...]]:
        return frozenset(held_out_states(self.task))


def shown(triple: TextTriple) -> set[tuple[int, ...]]:
    """The sorted numbers of the states that the action and the goal write."""
    return {*number_lists(triple.action), *number_lists(triple.goal)}
