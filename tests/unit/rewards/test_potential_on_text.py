"""Potential differences on written moves: the tokens that are paid, decoded."""

from __future__ import annotations

from itertools import groupby

import torch
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.advantages import MeanCentred, Potential
from contrastive_reasoning.rewards import OracleReward, VerifierReward
from contrastive_reasoning.rollout import RolloutBatch, token_bytes
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown import CountdownProblem, reachable

KEPT = "21+16=37;37-17=20;26+20=46"
LOST = "21+16=37;37+17=54;54+26=80"
ILLEGAL = "21+16=37;37-17=20;99+20=119"
AMID = "21+16=37;99+1=100;37-17=20;26+20=46"
MUTE = "nothing"
TEXTS = [KEPT, LOST, ILLEGAL, AMID, MUTE]
Paid = list[tuple[str, float]]


def paid(rollouts: RolloutBatch, advantages: torch.Tensor, tokenizer: PreTrainedTokenizerFast, row: int) -> Paid:
    """The text of neighbouring tokens of equal advantage, with it."""
    table = token_bytes(tokenizer)
    tokens = zip(
        rollouts.completion_ids[row].tolist(), advantages[row].tolist(), rollouts.mask[row].tolist(), strict=True
    )
    runs = groupby([(table[i], value) for i, value, written in tokens if written], key=lambda token: token[1])
    return [(b"".join(piece for piece, _ in run).decode(), value) for value, run in runs]


def returns_of(task: Task, rollouts: RolloutBatch, *, decay: float) -> torch.Tensor:
    oracle = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.0)
    potential = Potential(outcome=MeanCentred(), weight=1.0, decay=decay, scale=1.0)
    return potential(oracle(rollouts), rollouts.mask, rollouts.group_size)


def test_the_tokens_of_a_change_are_paid_for_it(task: Task, rollouts_of, tokenizer: PreTrainedTokenizerFast) -> None:
    """Of what can be reached from (21, 16, 17, 26) → 46, the second move of LOST loses it, and what the rules forbid.

    A move that stands behind an illegal one could have been made, but no longer matters.
    """
    rollouts = rollouts_of(TEXTS)
    returns = returns_of(task, rollouts, decay=0.0)
    assert [paid(rollouts, returns, tokenizer, row) for row in range(len(TEXTS))] == [
        [(KEPT, 0.0)],
        [("21+16=37;", 0.0), ("37+17=54;", -1.0), ("54+26=80", 0.0)],
        [("21+16=37;37-17=20;", 0.0), ("99+20=119", -1.0)],
        [("21+16=37;", 0.0), ("99+1=100;", -1.0), ("37-17=20;26+20=46", 0.0)],
        [(MUTE, -1.0)],
    ]


def test_without_decay_every_segment_gets_the_verdict_less_what_was_there(
    task: Task, rollouts_of, tokenizer: PreTrainedTokenizerFast
) -> None:
    hopeless = CountdownProblem((5, 3), 9, style="direct")
    assert not reachable((5, 3), 9)
    returns = returns_of(task, rollouts_of(["5+3=8", "5*3=15"], hopeless), decay=1.0)
    assert torch.equal(returns, torch.zeros_like(returns)), "nothing was there to lose"
    rollouts = rollouts_of(TEXTS)
    returns = returns_of(task, rollouts, decay=1.0)
    assert paid(rollouts, returns, tokenizer, 1) == [("21+16=37;37+17=54;", -1.0), ("54+26=80", 0.0)]
