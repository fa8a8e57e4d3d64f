"""Group advantages, GRPO's objective, aggregation and KL estimators against recorded reference numbers.

The reference adds 1e-8 to token counts, hence the tolerance. It has settings that are other parts here or none at all:
a group of one (refused here), KL estimators with straight-through gradients (they raise there).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.advantages import Advantage, GroupRelative, MeanCentred
from contrastive_reasoning.objectives import (
    GRPO,
    K1,
    K2,
    K3,
    KL,
    AbsoluteKL,
    Aggregation,
    ConstantLength,
    ObjectiveInputs,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    TokenMean,
)
from contrastive_reasoning.rewards import Credit

golden_rows = pytest.mark.golden_rows
VERL_K3 = K3(max_log_ratio=20.0, max_value=10.0)
KLS: dict[str, KL] = {
    "kl": K1(),
    "k1": K1(),
    "abs": AbsoluteKL(),
    "mse": K2(),
    "k2": K2(),
    "low_var_kl": VERL_K3,
    "k3": VERL_K3,
}


def close(actual: Tensor, expected: Any) -> None:
    assert_close(actual.detach(), torch.as_tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-8)


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def aggregation_of(mode: str, mask: Tensor) -> Aggregation:
    """The reference's modes; its ``sum-norm`` divides the sum over all rollouts by the padded length alone."""
    if mode == "seq-mean-token-sum-norm":
        return ConstantLength(length=mask.shape[1])
    return {
        "token-mean": TokenMean(),
        "seq-mean-token-sum": SeqMeanTokenSum(),
        "seq-mean-token-mean": SeqMeanTokenMean(),
    }[mode]


def rescale(mode: str, mask: Tensor) -> float:
    """Ours is a mean over the rollouts that wrote something, where the reference's ``sum-norm`` is a sum over them."""
    return float(mask.any(dim=1).sum()) if mode == "seq-mean-token-sum-norm" else 1.0


def objective(row: dict[str, Any], mask: Tensor, *, clips: tuple[float, float], kl: KL | None, weight: float) -> GRPO:
    return GRPO(
        clip_low=clips[0],
        clip_high=clips[1],
        dual_clip=row["clip_ratio_c"],
        kl_weight=weight,
        kl=kl,
        aggregation=aggregation_of(row["loss_agg_mode"], mask),
    )


def inputs(row: dict[str, Any]) -> ObjectiveInputs:
    return ObjectiveInputs(
        log_probs=double(row["log_prob"]).requires_grad_(),
        old_log_probs=double(row["old_log_prob"]),
        ref_log_probs=double(row["ref_log_prob"]) if "ref_log_prob" in row else None,
        advantages=double(row["advantages"]),
        mask=torch.tensor(row["response_mask"]).bool(),
    )


@golden_rows("policy_losses.json", "grpo_advantage")
@pytest.mark.parametrize("kind", ["std", "nostd"])
def test_advantages(golden_row: dict[str, Any], kind: str) -> None:
    advantage: Advantage = (
        MeanCentred() if kind == "nostd" else GroupRelative(normalise_std=True, epsilon=golden_row["epsilon"])
    )
    mask = torch.tensor(golden_row["response_mask"]).bool()
    expected = double(golden_row[f"advantages_{kind}"])
    rewards = double(golden_row["token_level_rewards"]).sum(dim=1)
    for name, size in Counter(golden_row["group"]).items():
        rows = [i for i, group in enumerate(golden_row["group"]) if group == name]
        credit = Credit(outcome=rewards[rows], parts={})
        if size == 1:
            with pytest.raises(ValueError, match="group_size must be at least 2"):
                advantage(credit, mask[rows], 1)
        else:
            close(advantage(credit, mask[rows], size), expected[rows])


@golden_rows("policy_losses.json", "policy_loss", "ppo_dual_clip")
def test_clipped_objective(golden_row: dict[str, Any]) -> None:
    given = inputs(golden_row)
    clips = (golden_row["clip_ratio_low"], golden_row["clip_ratio_high"])
    outputs = objective(golden_row, given.mask, clips=clips, kl=None, weight=0.0)(given)
    scale = rescale(golden_row["loss_agg_mode"], given.mask)
    close(outputs.loss * scale, golden_row["loss"])
    close(torch.autograd.grad(outputs.loss * scale, given.log_probs)[0], golden_row["grad_log_prob"])
    close(outputs.metrics["clip_fraction"], golden_row["pg_clipfrac"])
    close(outputs.metrics["dual_clip_fraction"], golden_row["pg_clipfrac_lower"])
    close(outputs.metrics["approx_kl"], golden_row["ppo_kl"])


@golden_rows("policy_losses.json", "grpo_actor_total")
def test_objective_with_kl(golden_row: dict[str, Any]) -> None:
    given = inputs(golden_row)
    clips = (golden_row["clip_ratio"], golden_row["clip_ratio"])
    kl = KLS[golden_row["kl_loss_type"]]
    outputs = objective(golden_row, given.mask, clips=clips, kl=kl, weight=golden_row["kl_loss_coef"])(given)
    close(outputs.loss, golden_row["loss"])
    close(outputs.metrics["kl"], golden_row["kl_loss"])
    close(torch.autograd.grad(outputs.loss, given.log_probs)[0], golden_row["grad_log_prob"])


@golden_rows("policy_losses.json", "agg_loss")
def test_aggregation(golden_row: dict[str, Any]) -> None:
    mask = torch.tensor(golden_row["loss_mask"]).bool()
    rows, tokens = float(mask.any(dim=1).sum()), float(mask.sum())
    for mode, expected in golden_row["loss"].items():
        weights = aggregation_of(mode, mask).weights(mask, rows=rows, tokens=tokens) * rescale(mode, mask)
        close((weights * double(golden_row["loss_mat"])).sum(), expected)
        close(weights, golden_row["grad"][mode])


@golden_rows("policy_losses.json", "kl_penalty")
def test_kl(golden_row: dict[str, Any]) -> None:
    mask = torch.tensor(golden_row["response_mask"]).bool()
    for name, expected in golden_row["per_token"].items():
        log_probs = double(golden_row["log_prob"]).requires_grad_()
        per_token = KLS[name](log_probs, double(golden_row["ref_log_prob"]))
        close(per_token, expected)
        aggregation = aggregation_of(golden_row["agg_mode"], mask)
        weights = aggregation.weights(mask, rows=float(mask.any(dim=1).sum()), tokens=float(mask.sum()))
        loss = (weights * per_token).sum()
        close(loss, golden_row["loss"][name])
        close(torch.autograd.grad(loss, log_probs)[0], golden_row["grad_log_prob"][name])
