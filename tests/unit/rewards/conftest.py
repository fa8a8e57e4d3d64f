from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import RolloutBatch, token_bytes, token_spans
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask, legal_moves
from tests.rollout_batches import rollout_batch
from tests.tiny_tasks import countdown

Rollouts = Callable[..., RolloutBatch]


def play(rng: random.Random, numbers: tuple[int, ...], most: int = 10) -> str:
    """Returns at most ``most`` random legal moves, by default those of a whole game."""
    written, state = [], numbers
    while len(state) > 1 and len(written) < most:
        move = rng.choice(legal_moves(state))
        written.append(move.equation)
        state = move.state
    return ";".join(written)


def values(credit: Credit) -> list[list[float]]:
    return [[step.value for step in row] for row in credit.steps or ()]


@pytest.fixture(scope="session")
def task() -> CountdownTask:
    return countdown(counts=[4], train_problems=20, validation_problems=5, test_problems=5)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["21+16=37;37-17=20;26+20=46\n", "|- Try 21 + 16 = 37. é漢"] * 5, vocab_size=300)


@pytest.fixture(scope="session")
def rollouts_of(tokenizer: PreTrainedTokenizerFast) -> Rollouts:
    """Returns a function that builds rollouts with the given texts, of one problem or several (prompt-major).

    Tokens and spans are those of the texts.
    """

    def build(texts: Sequence[str], *problems: Problem, finish: str = "stop") -> RolloutBatch:
        posed = problems or (CountdownProblem((21, 16, 17, 26), 46, style="direct"),)
        rows = [tokenizer(text)["input_ids"] for text in texts]
        width = max(map(len, rows), default=0)
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long)
        table = token_bytes(tokenizer)
        return rollout_batch(
            posed,
            torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None],
            prompt_ids=torch.ones(len(posed), 3, dtype=torch.long),
            prompt_mask=torch.ones(len(posed), 3, dtype=torch.bool),
            completion_ids=ids,
            texts=list(texts),
            token_spans=[token_spans(table, row) for row in rows],
            finish_reasons=[finish] * len(rows),
        )

    return build
