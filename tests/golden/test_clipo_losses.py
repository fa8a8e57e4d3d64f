"""CLIPO's losses, their gradients and the shaped reward against its released code and the printed formula.

The recorded code adds ε = 1e-8 inside the logarithms, which ``reference_epsilon`` reproduces. Its mean over positives
divides by |P| + ε; the effect is below the tolerances. With ``skip_trivial`` off, anchors without a positive or a
negative are recorded, too. Their loss has no meaning there (a lone positive is "multiplied out"); here it is exactly 0,
so only the other anchors are compared. The released code can add a constant before the floor; the paper and this
package do not. Rewards are compared without it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.testing import assert_close

from contrastive_reasoning.losses import dot, info_nce, neg_unit_l2, soft_nearest_neighbour, supcon, supcon_in
from contrastive_reasoning.losses.completions import LEVELS, Compared, epsilon_floor
from contrastive_reasoning.rewards import CLIPOReward, Credit, clipo
from contrastive_reasoning.rewards.clipo import contrastive_reward
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Verdict
from tests.rollout_batches import rollout_batch

golden_rows = pytest.mark.golden_rows
FORMULAS = {
    "infonce_loss": info_nce,
    "supcon_loss_out": supcon,
    "supcon_loss_in": supcon_in,
    "soft_nn_loss": soft_nearest_neighbour,
}
EXACT = ("exact_no_eps_self_excluded", "paper_formula_self_included")


def similarity_of(row: dict[str, Any]) -> Any:
    return {
        "cosine_distance": dot,  # of unit vectors
        "-cosine_distance": lambda anchors, candidates: -dot(anchors, candidates),
        "l2_distance": partial(neg_unit_l2, epsilon=row["eps"]),
    }[row["distance_measure"]]


def compare_completions(row: dict[str, Any], embeddings: Tensor) -> Compared:
    correct = torch.tensor(row["correct"], dtype=torch.bool)
    size = row["group_id"].count(row["group_id"][0])
    assert [row["group_id"][i - i % size] for i in range(len(correct))] == row["group_id"], "groups are contiguous"
    return LEVELS[row["contrastive_level"].removesuffix("_level")](embeddings, correct, size, similarity_of(row))


def recorded_positives(row: dict[str, Any], positive: Tensor) -> Tensor:
    """The recorded draw of one positive for each anchor that has one."""
    index = torch.tensor(row["positive_index"])
    if row["contrastive_level"] == "group_level":
        index = index % positive.shape[1]
    return torch.zeros_like(positive).scatter(1, index[:, None], True) & positive


def losses_of(row: dict[str, Any], compared: Compared, *, epsilon: float | None, itself: bool = False) -> Tensor:
    logits = compared.scores / row["tau"]
    candidate = torch.ones_like(compared.positive) if itself else ~compared.itself
    floor = None if epsilon is None else epsilon_floor(logits, epsilon)
    positive = compared.positive if row["positive_index"] is None else recorded_positives(row, compared.positive)
    return FORMULAS[row["loss_type"]](logits, positive, candidate, floor)


def anchors_of(row: dict[str, Any], compared: Compared) -> Tensor:
    """Valid anchors by our rule: with a positive and a negative, and correct (unless no label was masked)."""
    correct = torch.tensor(row["correct"], dtype=torch.bool)
    return compared.contrasted & (correct if row["masked_label"] == 0 else torch.ones_like(correct))


def float64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@golden_rows("clipo_losses.json", "cases")
def test_anchors_losses_and_gradients_match_the_released_code(golden_row: dict[str, Any]) -> None:
    embeddings = float64(golden_row["Z"]).requires_grad_()
    compared = compare_completions(golden_row, embeddings)
    anchors = anchors_of(golden_row, compared)
    recorded = torch.tensor(golden_row["anchor_valid"], dtype=torch.bool)
    assert torch.equal(anchors, recorded) or not (golden_row["skip_trivial"] or (anchors & ~recorded).any())
    losses = losses_of(golden_row, compared, epsilon=golden_row["eps"])
    assert_close(losses[anchors], float64(golden_row["per_anchor_loss"])[anchors], rtol=1e-6, atol=1e-7)
    lone = ~compared.positive.any(dim=1)
    assert_close(losses[lone], torch.zeros_like(losses[lone]), rtol=0.0, atol=0.0)
    if not torch.equal(anchors, recorded):
        return  # the recorded mean includes anchors without a positive or a negative
    if not anchors.any():
        assert golden_row["batch_loss"] == 0
        return
    losses[anchors].mean().backward()
    assert losses[anchors].mean().item() == pytest.approx(golden_row["batch_loss"], rel=1e-6, abs=1e-7)
    assert_close(embeddings.grad, float64(golden_row["grad_Z"]), rtol=1e-5, atol=1e-7)


@golden_rows("clipo_losses.json", "cases")
@pytest.mark.parametrize("column", EXACT)
def test_losses_without_epsilon_match_exact_formulas(golden_row: dict[str, Any], column: str) -> None:
    expected = golden_row[column]
    if expected is None:  # recorded for the default flags only
        default = {"contrastive_level": "group_level", "distance_measure": "cosine_distance"}
        flags = default | {"skip_trivial": True, "masked_label": 0, "constant_reward": 0.0}
        assert {key: golden_row[key] for key in flags} != flags
        return
    compared = compare_completions(golden_row, float64(golden_row["Z"]))
    losses = losses_of(golden_row, compared, epsilon=None, itself=column == "paper_formula_self_included")
    rows = [i for i, value in enumerate(expected) if value is not None]
    assert_close(losses[rows], float64([expected[i] for i in rows]), rtol=1e-9, atol=1e-10)


@golden_rows("clipo_losses.json", "cases")
def test_contrastive_reward_matches_the_released_code(golden_row: dict[str, Any]) -> None:
    correct = float64(golden_row["correct"])
    recorded = float64(golden_row["per_anchor_loss"])
    if golden_row["constant_reward"]:
        pytest.skip("a constant added before the floor is not ours")
    ours = contrastive_reward(recorded, weight=float(golden_row["lambda"]), floor=-0.5) * correct
    assert_close(ours, float64(golden_row["contrastive_reward"]), rtol=1e-6, atol=1e-7)


@golden_rows("clipo_losses.json", "head_cases")
def test_losses_and_gradients_through_a_head_match_the_released_code(golden_row: dict[str, Any]) -> None:
    weights = [float64(weight).requires_grad_() for weight in golden_row["weights"]]
    states = float64(golden_row["hidden_states"])
    for k, weight in enumerate(weights):
        states = nn.functional.linear(states.relu() if k else states, weight)
    row = golden_row | {
        "group_id": [0] * len(states),
        "contrastive_level": "group_level",
        "distance_measure": "cosine_distance",
        "masked_label": 0,
        "eps": 1e-8,
    }
    embeddings = normalize(states, dim=1)
    assert_close(embeddings, float64(golden_row["Z"]), rtol=1e-9, atol=1e-12)
    compared = compare_completions(row, embeddings)
    anchors = anchors_of(row, compared)
    losses = losses_of(row, compared, epsilon=row["eps"]).where(anchors, 0.0)
    assert_close(losses, float64(golden_row["per_anchor_loss"]), rtol=1e-6, atol=1e-7)
    losses[anchors].mean().backward()
    for weight, recorded in zip(weights, golden_row["grad_weights"], strict=True):
        assert_close(weight.grad, float64(recorded), rtol=1e-5, atol=1e-7)


@golden_rows("clipo_losses.json", "cases")
def test_clipo_reward_matches_the_recorded_final_reward(
    golden_row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the identity as head; in float32, hence the tolerance of 1e-4. Positives are the recorded ones."""
    ours = golden_row["distance_measure"] == "cosine_distance" and golden_row["skip_trivial"]
    if not ours or golden_row["constant_reward"] or golden_row["masked_label"]:
        pytest.skip("no case of the reward's own: another distance, a constant, another label")
    correct = [bool(mark) for mark in golden_row["correct"]]
    monkeypatch.setattr(clipo, "draw_positive", lambda positive, generator: recorded_positives(golden_row, positive))
    reward = CLIPOReward(
        outcome=RecordedOutcome(correct),
        head=IdentityHead(),
        similarity=dot,
        level=golden_row["contrastive_level"].removesuffix("_level"),
        formula=FORMULAS[golden_row["loss_type"]],
        positives="all" if golden_row["positive_index"] is None else "one",
        temperature=golden_row["tau"],
        weight=float(golden_row["lambda"]),
        floor=-0.5,
        self_in_denominator=False,
        reference_epsilon=golden_row["eps"],
        learning_rate=1e-3,
        weight_decay=0.01,
        trainable=False,
        warmup_steps=0,
        max_skipped_steps=0,
        seed=0,
    )
    rollouts = rollouts_of(
        torch.tensor(golden_row["Z"]), group_size=golden_row["group_id"].count(golden_row["group_id"][0])
    )
    assert_close(reward(rollouts).outcome, torch.tensor(golden_row["final_reward"]), rtol=1e-4, atol=1e-4)


class RecordedOutcome:
    """An outcome reward of 1 for completions that were recorded as correct."""

    def __init__(self, correct: list[bool]) -> None:
        self.correct = correct

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = torch.tensor(self.correct).float()
        verdicts = [Verdict(status="ok" if mark else "wrong", reason="") for mark in self.correct]
        return Credit(outcome=outcome, parts={"verifier": outcome}, verdicts=verdicts)


class IdentityHead:
    """Builds a head that is the identity."""

    def __call__(self, width: int) -> nn.Module:
        head = nn.Linear(width, width, bias=False)
        nn.init.eye_(head.weight)
        return head


def rollouts_of(states: Tensor, *, group_size: int) -> RolloutBatch:
    problems = [Problem(id=str(k), prompt="", answer="") for k in range(len(states) // group_size)]
    mask = torch.ones(len(states), 1, dtype=torch.bool)
    return rollout_batch(problems, mask, pooled=states, token_spans=[[(0, 0)]] * len(states))
