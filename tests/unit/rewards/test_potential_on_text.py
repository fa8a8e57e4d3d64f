"""Potential differences on written moves: the decoded text of the tokens that get them, and their gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.advantages import MeanCentred, Potential
from contrastive_reasoning.rewards import Credit, OracleReward, VerifierReward
from contrastive_reasoning.rewards.controls import fixed_draw
from contrastive_reasoning.rewards.step_values import add_step_credit
from contrastive_reasoning.rollout import RolloutBatch, token_bytes
from contrastive_reasoning.tasks.arithmetic.equations import parse_steps as equations
from contrastive_reasoning.tasks.base import Problem, Step, Task, Verdict
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps, reachable
from contrastive_reasoning.tasks.problem_set import sentence_steps
from tests.rollout_batches import rollout_batch

KEPT = "21+16=37;37-17=20;26+20=46"
LOST = "21+16=37;37+17=54;54+26=80"
ILLEGAL = "21+16=37;37-17=20;99+20=119"
AMID = "21+16=37;99+1=100;37-17=20;26+20=46"
MUTE = "nothing"
TEXTS = [KEPT, LOST, ILLEGAL, AMID, MUTE]
CreditedText = list[tuple[str, float]]


def credited_text(
    rollouts: RolloutBatch, advantages: torch.Tensor, tokenizer: PreTrainedTokenizerFast, row: int
) -> CreditedText:
    """Returns the text of neighbouring tokens of equal advantage, each text with its advantage."""
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


def test_tokens_of_segment_get_its_potential_difference(
    task: Task, rollouts_of, tokenizer: PreTrainedTokenizerFast
) -> None:
    """The second move of LOST and illegal moves lose the target; a legal move after them no longer matters."""
    rollouts = rollouts_of(TEXTS)
    returns = returns_of(task, rollouts, decay=0.0)
    assert [credited_text(rollouts, returns, tokenizer, row) for row in range(len(TEXTS))] == [
        [(KEPT, 0.0)],
        [("21+16=37;", 0.0), ("37+17=54;", -1.0), ("54+26=80", 0.0)],
        [("21+16=37;37-17=20;", 0.0), ("99+20=119", -1.0)],
        [("21+16=37;", 0.0), ("99+1=100;", -1.0), ("37-17=20;26+20=46", 0.0)],
        [(MUTE, -1.0)],
    ]


def test_decay_one_credits_segment_with_verdict_minus_value(
    task: Task, rollouts_of, tokenizer: PreTrainedTokenizerFast
) -> None:
    hopeless = CountdownProblem((5, 3), 9, style="direct")
    assert not reachable((5, 3), 9)
    returns = returns_of(task, rollouts_of(["5+3=8", "5*3=15"], hopeless), decay=1.0)
    assert torch.equal(returns, torch.zeros_like(returns)), "nothing was there to lose"
    rollouts = rollouts_of(TEXTS)
    returns = returns_of(task, rollouts, decay=1.0)
    assert credited_text(rollouts, returns, tokenizer, 1) == [("21+16=37;37+17=54;", -1.0), ("54+26=80", 0.0)]


END = ""
LENGTH = 4
NOTHING, MATTERS = 1e-12, 1e-6
SEARCH = ["|- Try 1 + 2 = 3. Current number set: [3, 4]", "Try 3 + 4 = 7. Evaluate 7", "\n", ", x", END]
KINDS = {
    "moves": ("direct", ["1+2=3", ";3+4=7", ";", "3", "5+1=6", " ", END]),
    "moves, in other tokens": ("direct", ["1+2=", "3", "3;", "3;3", "+4=7", END]),
    "search": ("longproc", SEARCH),
    "equations": ("", ["1+2=3", "4", ".", " ", "+", " 2+2=5", END]),
    "sentences": ("", ["So it is", ".", " ", "A", "b", "\n", END]),
}


def read(kind: str, problem: Problem, text: str) -> list[Step]:
    if kind == "equations":
        return equations(problem, text)
    return sentence_steps(text) if kind == "sentences" else parse_steps(problem, text)


def completions(vocabulary: Sequence[str]) -> list[tuple[int, ...]]:
    """Returns all completions of at most ``LENGTH`` tokens; the last of the vocabulary ends one earlier."""
    going: list[tuple[int, ...]] = [()]
    ended: list[tuple[int, ...]] = []
    for _ in range(LENGTH):
        longer = [(*prefix, token) for prefix in going for token in range(len(vocabulary))]
        ended += [path for path in longer if vocabulary[path[-1]] == END]
        going = [path for path in longer if vocabulary[path[-1]] != END]
    return ended + going


def credit_of(kind: str) -> tuple[list[tuple[int, ...]], Tensor, Credit]:
    """Returns all completions, their mask, and their credit with a random value per state and random verdicts."""
    style, vocabulary = KINDS[kind]
    problem = CountdownProblem((1, 2, 4), 7, style=style) if style else Problem(id="0", prompt="", answer="7")
    paths = completions(vocabulary)
    texts = ["".join(vocabulary[token] for token in path) for path in paths]
    steps = [read(kind, problem, text) for text in texts]
    assert sum(map(len, steps)) > len(paths) / 20
    ends = [[0, *accumulate(len(vocabulary[token]) for token in path)] for path in paths]
    mask = torch.arange(LENGTH) < torch.tensor([len(path) for path in paths])[:, None]
    rollouts = rollout_batch(
        [problem],
        mask,
        old_log_probs=torch.zeros(mask.shape, dtype=torch.float64),
        texts=texts,
        token_spans=[list(pairwise(row)) for row in ends],
        finish_reasons=["stop" if vocabulary[path[-1]] == END else "length" for path in paths],
    )
    right = [fixed_draw("right", path) < 0.4 for path in paths]
    judged = Credit(
        outcome=torch.tensor(right, dtype=torch.float64),
        parts={},
        verdicts=[Verdict(status="ok" if one else "wrong", reason="" if one else "drawn") for one in right],
    )
    values = [[(step, fixed_draw("value", step.state)) for step in row if step.legal] for row in steps]
    illegal = [[step for step in row if not step.legal] for row in steps]
    return (
        paths,
        mask,
        add_step_credit(judged, rollouts, values, illegal=illegal, name="drawn", weight=0.0, starts=[0.9]),
    )


def gradient(paths: Sequence[tuple[int, ...]], advantages: Tensor, kind: str) -> Tensor:
    """E[Σ_t A_t ∇ log π(a_t | prefix)] under a policy with separate logits for every prefix."""
    prefixes = sorted({path[:length] for path in paths for length in range(len(path))})
    place = {prefix: index for index, prefix in enumerate(prefixes)}
    size = len(KINDS[kind][1])
    logits = torch.randn(len(prefixes), size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = logits.requires_grad_().log_softmax(dim=1)
    rows = [(row, length) for row, path in enumerate(paths) for length in range(len(path))]
    tokens = torch.tensor(rows).T.unbind()
    chosen = [(place[paths[row][:length]], paths[row][length]) for row, length in rows]
    log_probs = torch.zeros(len(paths), LENGTH, dtype=torch.float64)
    log_probs = log_probs.index_put(tokens, table[torch.tensor(chosen).T.unbind()])
    (log_probs.detach().sum(dim=1).exp()[:, None] * advantages * log_probs).sum().backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("kind", KINDS)
def test_decay_one_gradient_is_unbiased_only_if_steps_end_when_settled(kind: str) -> None:
    """The bias is the largest difference between the gradients by the λ-returns and by R."""
    paths, mask, credit = credit_of(kind)
    by_outcome = gradient(paths, credit.outcome[:, None] * mask, kind)
    potential = Potential(outcome=MeanCentred(), weight=1.0, decay=1.0, scale=1.0)

    def bias(credit: Credit) -> float:
        return (gradient(paths, potential(credit, mask, len(paths)), kind) - by_outcome).abs().max().item()

    assert bias(credit) < NOTHING
    too_early = [[step._replace(settled_token=None) for step in row] for row in credit.steps or []]
    assert bias(replace(credit, steps=too_early)) > MATTERS
