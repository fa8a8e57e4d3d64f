"""Preference pairs of verified completions: for one prompt, a play that reaches the target and one that does not.

The first is a random sequence of moves that keep the target reachable, the second a random sequence of legal moves. If
the verifier accepts the second, it is redrawn. Completions contain only moves (``direct``): a written search states its
target in the first line, which would reveal the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from contrastive_reasoning.critics.preference import PreferenceBatch
from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw
from contrastive_reasoning.tasks.countdown.oracle import best_moves
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.verifier import verify
from datamodules.batch_stream import BatchData, Reader, reader_of
from datamodules.plays import random_play

ATTEMPTS = 1000
"""Maximum number of random plays of one problem; if all are correct, every play counts as solving it."""


class PreferencePair(NamedTuple):
    problem: CountdownProblem
    chosen: str
    rejected: str
    prefix: str
    """A beginning of ``chosen``: some but not all of its moves; empty if it has only one move."""


@dataclass(kw_only=True, eq=False, repr=False)
class PreferencePairs(BatchData[PreferenceBatch]):
    """Batches of ``batch_size`` preference pairs, each a function of its number."""

    task: CountdownTask
    """Training never uses its reserved keys or problems of the validation and test splits."""
    space: ProblemSpace
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reader: Reader | None = None

    def setup(self, stage: str | None = None) -> None:
        """Takes the tokenizer from the trainer's critic; raises a ValueError if the critic does not read text."""
        self.reader = reader_of(self.trainer, needed_by="datamodule=preference_pairs")

    def pairs(self, number: int, *, split: Split) -> list[PreferencePair]:
        """The pairs of batch ``number``: a function of number, split and seed."""
        exclude = self.task.reserved_keys() if split == "train" else frozenset()
        first = number * self.batch_size
        drawn = []
        for index in range(first, first + self.batch_size):
            numbers, target = draw(self.space, seed=self.seed, split=split, index=index, exclude=exclude)
            rng = random.Random(f"{self.seed}/preference pairs/{split}/{index}")
            drawn.append(draw_pair(CountdownProblem(numbers, target, style="direct"), rng))
        return drawn

    def batch(self, number: int, *, split: Split = "train") -> PreferenceBatch:
        """Batch ``number`` as tokens; each text begins with its prompt."""
        if self.reader is None:
            raise ValueError("preference pairs have no tokenizer before a trainer with a critic has set them up")
        pairs, tokenize = self.pairs(number, split=split), self.reader.tokenize
        return PreferenceBatch(
            chosen=tokenize([pair.problem.prompt + pair.chosen for pair in pairs]),
            rejected=tokenize([pair.problem.prompt + pair.rejected for pair in pairs]),
            prefix=tokenize([pair.problem.prompt + pair.prefix for pair in pairs]),
        )

    def successes(self, batches: int) -> Iterator[dict[str, Tensor]]:
        """The correct completions of the first training batches as tokens; resuming training does not change them."""
        return (self.batch(number).chosen for number in range(batches))


def draw_pair(problem: CountdownProblem, rng: random.Random) -> PreferencePair:
    """Draws one correct completion, one that the verifier rejects, and a beginning of the first.

    Raises:
        ValueError: if the problem cannot be solved, or every random play solves it.
    """
    numbers, target = problem.fields["numbers"], problem.fields["target"]
    if not best_moves(numbers, target):
        raise ValueError(f"a preference pair needs a problem that can be solved, got {list(numbers)} to {target}")
    chosen, _ = random_play(numbers, lambda state: best_moves(state, target), rng)
    plays = (random_play(numbers, legal_moves, rng)[0] for _ in range(ATTEMPTS))
    rejected = next((play for play in plays if not verify(problem, play).correct), None)
    if rejected is None:
        raise ValueError(f"{ATTEMPTS} random plays all solve {problem.prompt!r}: no completion of it is wrong")
    steps = parse_steps(problem, chosen)
    prefix = chosen[: rng.choice(steps[:-1]).end] if len(steps) > 1 else ""
    return PreferencePair(problem, chosen, rejected, prefix)
