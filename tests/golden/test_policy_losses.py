"""Advantages, every policy objective, aggregation and KL against recorded reference numbers, in loss and gradient.

The reference adds 1e-8 to token counts, hence the tolerance. Intended differences:

- A group of one has an advantage in the reference; ours raises an error. Straight-through KL estimators raise there.
- Its ``seq-mean-token-sum-norm`` is a sum over rollouts, ours a mean: compared after multiplying by their number.
- Its GMPO and TRL's means over rollouts count rollouts without tokens; ours do not: compared after rescaling.
- Its GMPO ignores ``loss_agg_mode`` and is a mean over rollouts: compared with that aggregation, not with our default.
- Its GMPO counts ratios outside the bounds in either direction as clipped. TRL's CISPO counts those with A > 0, and
  TRL's sequence level counts completions. Ours counts the tokens that a bound has cut. They are not compared.
- TRL sets CISPO's bound itself (5.0), ours is 1 + clip_high. TRL's k3 has no bounds.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.advantages import Advantage, GroupRelative, MeanCentred
from contrastive_reasoning.objectives import (
    CISPO,
    DAPO,
    GMPO,
    GRPO,
    GSPO,
    K1,
    K2,
    K3,
    KL,
    AbsoluteKL,
    Aggregation,
    ConstantLength,
    DrGRPO,
    FullKL,
    Objective,
    ObjectiveInputs,
    ObjectiveOutputs,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    TokenMean,
)
from contrastive_reasoning.policies.log_probs import full_kl
from contrastive_reasoning.rewards import Credit

golden_rows = pytest.mark.golden_rows
VERL_K3 = K3(max_log_ratio=20.0, max_value=10.0)
NO_KL: dict[str, Any] = {"kl_weight": 0.0, "kl": None}
TRL_K3 = K3(max_log_ratio=inf, max_value=inf)
KLS: dict[str, KL] = {
    "kl": K1(),
    "k1": K1(),
    "abs": AbsoluteKL(),
    "mse": K2(),
    "k2": K2(),
    "low_var_kl": VERL_K3,
    "k3": VERL_K3,
}


def assert_near(actual: Tensor, expected: Any) -> None:
    assert_close(actual.detach(), torch.as_tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-8)


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def aggregation_of(mode: str, mask: Tensor) -> Aggregation:
    """Our aggregation for a mode. The reference's ``sum-norm`` divides the sum over rollouts by the padded length."""
    if mode == "seq-mean-token-sum-norm":
        return ConstantLength(length=mask.shape[1])
    return {
        "token-mean": TokenMean(),
        "seq-mean-token-sum": SeqMeanTokenSum(),
        "seq-mean-token-mean": SeqMeanTokenMean(),
    }[mode]


def nonempty_rollouts(mask: Tensor) -> float:
    """Number of rollouts with a token; our means over rollouts are over these."""
    return float(mask.any(dim=1).sum())


def rescale(mode: str, mask: Tensor) -> float:
    """The factor between the reference's ``sum-norm``, a sum over rollouts with a token, and our mean over them."""
    return nonempty_rollouts(mask) if mode == "seq-mean-token-sum-norm" else 1.0


def assert_matches_recorded(
    outputs: ObjectiveOutputs, given: ObjectiveInputs, row: dict[str, Any], scale: float = 1.0
) -> None:
    """Compares loss and gradient."""
    assert_near(outputs.loss * scale, row["loss"])
    assert_near(torch.autograd.grad(outputs.loss * scale, given.log_probs)[0], row["grad_log_prob"])


def clips(row: dict[str, Any]) -> dict[str, float]:
    return {"clip_low": row["clip_ratio_low"], "clip_high": row["clip_ratio_high"]}


def inputs(row: dict[str, Any]) -> ObjectiveInputs:
    mask = torch.tensor(row["response_mask" if "response_mask" in row else "completion_mask"]).bool()
    advantages = double(row["advantages"])
    return ObjectiveInputs(
        log_probs=double(row["log_prob"]).requires_grad_(),
        old_log_probs=double(row["old_log_prob"]),
        ref_log_probs=double(row["ref_log_prob"]) if "ref_log_prob" in row else None,
        advantages=advantages if advantages.ndim == 2 else advantages[:, None].expand(mask.shape),
        mask=mask,
    )


@golden_rows("policy_losses.json", "grpo_advantage")
@pytest.mark.parametrize("kind", ["std", "nostd"])
def test_advantages_match_reference(golden_row: dict[str, Any], kind: str) -> None:
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
            with pytest.raises(ValueError, match="group_size"):
                advantage(credit, mask[rows], 1)
        else:
            assert_near(advantage(credit, mask[rows], size), expected[rows])
            if kind == "nostd" or rewards[rows].std() > 1e-3:  # the reference rounds up a smaller deviation
                first = double(golden_row[f"vectorized_float32_{kind}"])[rows]
                assert_close(advantage(credit, mask[rows], size)[:, 0], first, rtol=5e-3, atol=5e-3)


@golden_rows("policy_losses.json", "grpo_advantage")
def test_advantages_with_trl_epsilon_match_trl(golden_row: dict[str, Any]) -> None:
    expected = golden_row["trl_scale_group_eps1e-4"]
    if expected is None:
        pytest.skip("recorded only for batches of equal groups, one after the other")
    rewards, size = double(golden_row["rewards"]), golden_row["group"].count(golden_row["group"][0])
    one_token = torch.ones(len(rewards), 1, dtype=torch.bool)
    advantages = GroupRelative(normalise_std=True, epsilon=1e-4)(Credit(outcome=rewards, parts={}), one_token, size)
    assert_near(advantages[:, 0], expected)


@golden_rows("policy_losses.json", "policy_loss", "ppo_dual_clip")
def test_grpo_matches_reference_loss_and_gradient(golden_row: dict[str, Any]) -> None:
    given, mode = inputs(golden_row), golden_row["loss_agg_mode"]
    aggregation = aggregation_of(mode, given.mask)
    objective = GRPO(**clips(golden_row), **NO_KL, dual_clip=golden_row["clip_ratio_c"], aggregation=aggregation)
    outputs = objective(given)
    assert_matches_recorded(outputs, given, golden_row, rescale(mode, given.mask))
    assert_verl_metrics(outputs, golden_row)


def assert_verl_metrics(outputs: ObjectiveOutputs, row: dict[str, Any]) -> None:
    assert_near(outputs.metrics["clip_fraction"], row["pg_clipfrac"])
    assert_near(outputs.metrics["approx_kl"], row["ppo_kl"])
    if "dual_clip_fraction" in outputs.metrics:
        assert_near(outputs.metrics["dual_clip_fraction"], row["pg_clipfrac_lower"])


@golden_rows("policy_losses.json", "policy_loss", "dapo")
def test_dapo_matches_reference_loss_and_gradient(golden_row: dict[str, Any]) -> None:
    assert golden_row["loss_agg_mode"] == "token-mean"
    given = inputs(golden_row)
    outputs = DAPO(**clips(golden_row), dual_clip=golden_row["clip_ratio_c"])(given)
    assert_matches_recorded(outputs, given, golden_row)
    assert_verl_metrics(outputs, golden_row)


@golden_rows("policy_losses.json", "policy_loss", "gspo")
def test_gspo_matches_reference_loss_and_gradient(golden_row: dict[str, Any]) -> None:
    """With ``SeqMeanTokenMean`` for each row, because the reference ignores the row's mode."""
    given = inputs(golden_row)
    outputs = GSPO(**clips(golden_row), **NO_KL, aggregation=SeqMeanTokenMean())(given)
    assert_matches_recorded(outputs, given, golden_row)
    assert_verl_metrics(outputs, golden_row)


@golden_rows("policy_losses.json", "policy_loss", "gmpo")
def test_gmpo_matches_reference_loss_and_gradient(golden_row: dict[str, Any]) -> None:
    """With ``SeqMeanTokenMean`` for each row: the reference ignores the row's mode, and counts empty rows."""
    given = inputs(golden_row)
    outputs = GMPO(**clips(golden_row), **NO_KL, aggregation=SeqMeanTokenMean())(given)
    assert_matches_recorded(outputs, given, golden_row, nonempty_rollouts(given.mask) / len(given.mask))
    assert_near(outputs.metrics["approx_kl"], golden_row["ppo_kl"])


@golden_rows("policy_losses.json", "trl_grpo_trainer")
def test_objectives_match_trl_loss_and_gradient(golden_row: dict[str, Any]) -> None:
    given = inputs(golden_row)
    assert golden_row["num_items_in_batch"] == given.mask.sum(), "tokens of the batch, in one process"
    outputs = trl_objective(golden_row)(given)
    over_rows = golden_row["loss_type"] in ("grpo", "dr_grpo")
    assert_matches_recorded(
        outputs, given, golden_row, nonempty_rollouts(given.mask) / len(given.mask) if over_rows else 1.0
    )
    if golden_row["beta"]:
        assert_near(outputs.metrics["kl"], golden_row["metrics"]["kl"])
    if golden_row["importance_sampling_level"] == "token" and golden_row["loss_type"] != "cispo":
        assert_near(outputs.metrics["clip_fraction"], golden_row["metrics"]["clip_ratio/region_mean"])


def trl_objective(row: dict[str, Any]) -> Objective:
    """Our objective for a row of TRL's trainer, whose two-sided ``delta`` is our ``dual_clip``."""
    bounds: dict[str, Any] = {"clip_low": row["epsilon_low"], "clip_high": row["epsilon_high"]}
    kl: dict[str, Any] = {"kl_weight": row["beta"], "kl": TRL_K3 if row["beta"] else None}
    if row["loss_type"] == "cispo":
        return CISPO(clip_low=None, clip_high=row["epsilon_high"] - 1, **kl, aggregation=TokenMean())
    if row["importance_sampling_level"] == "sequence":
        return GSPO(**bounds, **kl, aggregation={"grpo": SeqMeanTokenMean()}[row["loss_type"]])
    if row["loss_type"] == "dapo":
        assert not row["beta"]
        return DAPO(**bounds, dual_clip=row["delta"])
    if row["loss_type"] == "dr_grpo":
        assert row["delta"] is None
        return DrGRPO(**bounds, **kl, length=row["max_completion_length"])
    aggregation = {"grpo": SeqMeanTokenMean(), "bnpo": TokenMean()}[row["loss_type"]]
    return GRPO(**bounds, **kl, dual_clip=row["delta"], aggregation=aggregation)


@golden_rows("policy_losses.json", "grpo_actor_total")
def test_grpo_with_kl_matches_reference_loss_and_gradient(golden_row: dict[str, Any]) -> None:
    given, weight, clip = inputs(golden_row), golden_row["kl_loss_coef"], golden_row["clip_ratio"]
    outputs = GRPO(
        clip_low=clip,
        clip_high=clip,
        dual_clip=golden_row["clip_ratio_c"],
        kl_weight=weight,
        kl=KLS[golden_row["kl_loss_type"]],
        aggregation=aggregation_of(golden_row["loss_agg_mode"], given.mask),
    )(given)
    assert_matches_recorded(outputs, given, golden_row)
    assert_near(outputs.metrics["kl"], golden_row["kl_loss"])
    assert_near(outputs.loss - weight * outputs.metrics["kl"], golden_row["pg_loss"])


@golden_rows("policy_losses.json", "agg_loss")
def test_aggregations_match_reference_loss_and_gradient(golden_row: dict[str, Any]) -> None:
    mask = torch.tensor(golden_row["loss_mask"]).bool()
    rows, tokens = nonempty_rollouts(mask), float(mask.sum())
    for mode, expected in golden_row["loss"].items():
        weights = aggregation_of(mode, mask).weights(mask, rows=rows, tokens=tokens) * rescale(mode, mask)
        assert_near((weights * double(golden_row["loss_mat"])).sum(), expected)
        assert_near(weights, golden_row["grad"][mode])


@golden_rows("policy_losses.json", "kl_penalty")
def test_kl_estimators_match_reference_values_and_gradients(golden_row: dict[str, Any]) -> None:
    mask = torch.tensor(golden_row["response_mask"]).bool()
    for name, expected in golden_row["per_token"].items():
        log_probs = double(golden_row["log_prob"]).requires_grad_()
        per_token = KLS[name](log_probs, double(golden_row["ref_log_prob"]))
        assert_near(per_token, expected)
        aggregation = aggregation_of(golden_row["agg_mode"], mask)
        weights = aggregation.weights(mask, rows=nonempty_rollouts(mask), tokens=float(mask.sum()))
        loss = (weights * per_token).sum()
        assert_near(loss, golden_row["loss"][name])
        assert_near(torch.autograd.grad(loss, log_probs)[0], golden_row["grad_log_prob"][name])


@golden_rows("policy_losses.json", "full_kl_independent")
@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_full_kl_matches_recorded_values(golden_row: dict[str, Any], chunk: int) -> None:
    """Logits are the hidden states, the identity is the projection; exchanging the two gives the other direction."""
    policy, reference = double(golden_row["logits"]).flatten(0, 1), double(golden_row["ref_logits"]).flatten(0, 1)
    identity = torch.eye(policy.shape[1], dtype=torch.float64)
    for one, other, name in ((policy, reference, "kl_policy_ref"), (reference, policy, "kl_ref_policy")):
        divergence = full_kl(one, identity, other, identity, temperature=1.0, chunk=chunk)
        assert_near(divergence, double(golden_row[name]).flatten())


@golden_rows("policy_losses.json", "full_kl_independent")
def test_grpo_with_full_kl_matches_recorded_kl_and_its_gradient(golden_row: dict[str, Any]) -> None:
    """With zero advantages the loss is 0.5 · the mean recorded KL, its gradient ∝ p (log p − log q − KL) per logit."""
    logits, reference = double(golden_row["logits"]).requires_grad_(), double(golden_row["ref_logits"])
    identity, flat = torch.eye(logits.shape[-1], dtype=torch.float64), reference.flatten(0, 1)
    divergence = full_kl(logits.flatten(0, 1), identity, flat, identity, temperature=1.0, chunk=5)
    chosen = logits.log_softmax(dim=-1)[..., 0]
    settings: dict[str, Any] = {"dual_clip": None, "kl_weight": 0.5, "kl": FullKL(), "aggregation": TokenMean()}
    outputs = GRPO(clip_low=0.2, clip_high=0.2, **settings)(
        ObjectiveInputs(
            log_probs=chosen,
            old_log_probs=chosen.detach(),
            ref_log_probs=None,
            advantages=torch.zeros_like(chosen),
            mask=torch.ones(chosen.shape, dtype=torch.bool),
            full_kl=divergence.view(chosen.shape),
        )
    )
    expected = double(golden_row["kl_policy_ref"])
    assert_near(outputs.loss, 0.5 * expected.mean())
    gap = logits.log_softmax(dim=-1) - reference.log_softmax(dim=-1)
    gradient = logits.softmax(dim=-1) * (gap - expected[..., None]) * 0.5 / expected.numel()
    assert_near(torch.autograd.grad(outputs.loss, logits)[0], gradient.detach())
