"""Contrastive losses and their gradients against independent formulas in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.losses import (
    BackwardInfoNCE,
    BalancedBinaryNCE,
    BinaryNCE,
    InfoNCE,
    SymmetricInfoNCE,
    WithPenalty,
    categorical_accuracy,
    logsumexp_penalty,
    similarities,
)

golden_rows = pytest.mark.golden_rows
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def loss_of(name: str, row: dict[str, Any]) -> Loss:
    temperature, weight = row["temperature"], row["lse_coef"]
    plain: dict[str, Loss] = {
        "forward_infonce": InfoNCE(temperature=temperature),
        "backward_infonce": BackwardInfoNCE(temperature=temperature),
        "symmetric_infonce": SymmetricInfoNCE(temperature=temperature),
        "binary_nce": BinaryNCE(temperature=temperature),
        "binary_nce_balanced": BalancedBinaryNCE(temperature=temperature),
        "logsumexp_penalty": lambda scores, _, counts: logsumexp_penalty(scores / temperature, counts).mean(),
    }
    if name in plain:
        return plain[name]
    return WithPenalty(loss=plain[name.removesuffix("_lse")], temperature=temperature, weight=weight)  # type: ignore


def inputs_of(row: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """State–action and goal embeddings as leaves, positives on the diagonal, every pair a candidate."""
    anchors, goals = (torch.tensor(row[key], dtype=torch.float64, requires_grad=True) for key in ("sa", "g"))
    positive = torch.eye(len(anchors), dtype=torch.bool)
    return anchors, goals, positive, torch.ones_like(positive)


@golden_rows("infonce_critic.json", "cases")
def test_losses_and_gradients_match_recorded_values(golden_row: dict[str, Any]) -> None:
    for name, expected in golden_row["losses"].items():
        anchors, goals, positive, candidate = inputs_of(golden_row)
        scores = similarities[golden_row["similarity"]](anchors, goals)
        loss = loss_of(name, golden_row)(scores, positive, candidate)
        assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-12), name
        if name in golden_row["grads"]:
            loss.backward()
            for leaf, key in ((anchors, "sa"), (goals, "g")):
                recorded = torch.tensor(golden_row["grads"][name][key], dtype=torch.float64)
                assert_close(leaf.grad, recorded, rtol=1e-7, atol=1e-10)
    assert golden_row["grads"].keys() <= golden_row["losses"].keys()


@golden_rows("infonce_critic.json", "cases")
def test_logits_and_accuracies_match_recorded_values(golden_row: dict[str, Any]) -> None:
    anchors, goals, positive, _ = inputs_of(golden_row)
    logits = similarities[golden_row["similarity"]](anchors, goals).detach() / golden_row["temperature"]
    assert_close(logits, torch.tensor(golden_row["logits"], dtype=torch.float64), rtol=1e-8, atol=1e-10)
    forward = categorical_accuracy(logits, positive).double().mean().item()
    backward = categorical_accuracy(logits.T, positive.T).double().mean().item()
    assert forward == pytest.approx(golden_row["categorical_accuracy"], rel=1e-12)
    assert backward == pytest.approx(golden_row["categorical_accuracy_backward"], rel=1e-12)
    assert ((logits > 0) == positive).double().mean().item() == pytest.approx(golden_row["binary_accuracy"], rel=1e-12)
    assert logits[positive].mean().item() == pytest.approx(golden_row["logits_pos_mean"], rel=1e-8)
    assert logits[~positive].mean().item() == pytest.approx(golden_row["logits_neg_mean"], rel=1e-8)
