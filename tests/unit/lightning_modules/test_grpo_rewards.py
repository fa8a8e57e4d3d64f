"""GRPO in a real Trainer with CLIPO's trained head, and with a trust gate on step credit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.rewards.clipo import CLIPOReward
from tests.unit.lightning_modules.grpo_kit import Metrics, Recorder, fit, module, objective, policy, weights
from tests.unit.lightning_modules.rewards_kit import OUTCOME, Even, clipo, gated


def head_of(reward: CLIPOReward) -> Tensor:
    assert reward.g is not None
    return next(reward.g.parameters()).detach().clone()


def test_only_head_trains_during_warmup() -> None:
    reward, metrics = clipo(warmup_steps=2), Metrics()
    trained = module(reward=reward)
    before, untouched = weights(trained), module(reward=clipo(warmup_steps=2))
    fit(untouched, 0)
    assert untouched.rollout_step == 2
    assert torch.equal(weights(untouched), before)
    fresh = clipo(warmup_steps=2)
    fresh._build(head_of(untouched.reward).shape[1])
    assert not torch.equal(head_of(untouched.reward), head_of(fresh))
    fit(trained, 2, metrics)
    assert trained.rollout_step == 4, "two batches for the head, two for the policy"
    assert "train/objective/loss" not in metrics.steps[1]
    assert "train/objective/loss" in metrics.steps[2]
    assert {"train/clipo/loss", "train/reward/clipo", "train/clipo/valid_groups"} <= set(metrics.steps[0])
    assert not torch.equal(weights(trained), before)
    assert metrics.steps[2]["train/optimizer/learning_rate"] == pytest.approx(0.5e-3), "its schedule begins then"


def test_only_policy_is_registered_and_reference_requires_kl_term() -> None:
    kept, dropped = (module(reward=clipo(), reference=policy(seed=2), objective=objective(kl)) for kl in (0.1, 0.0))
    fit(kept, 1)
    assert all(name.startswith("policy.") for name in kept.state_dict())
    assert not any("head" in name and "lm_head" not in name for name in kept.state_dict())
    assert len(list(kept.parameters())) == len(list(kept.policy.parameters()))
    assert kept.reference is not None
    assert dropped.reference is None


def test_zero_clipo_weight_is_bitwise_equal_to_plain_reward() -> None:
    plain = module(reward=Even())
    zero = module(reward=clipo(weight=0.0))
    fit(plain, 3)
    fit(zero, 3)
    assert torch.equal(weights(plain), weights(zero))


def test_non_finite_head_loss_raises_and_writes_rollouts(tmp_path: Path) -> None:
    trained = module(reward=clipo(formula=lambda logits, *_: logits.sum(dim=1) * float("nan"), warmup_steps=5))
    before = weights(trained)
    with pytest.raises(FloatingPointError, match=r"0 steps of CLIPO") as error:
        fit(trained, 2, root=tmp_path)
    path = tmp_path / "skipped" / "step=000001.rank0.pt"
    assert f"the batch of step 1 is in {path}" in str(error.value)
    assert {"completion_ids", "pooled", "texts"} <= torch.load(path, weights_only=True).keys()
    assert torch.equal(weights(trained), before)


def test_run_without_trust_is_bitwise_equal_to_plain_grpo() -> None:
    plain, closed, wide_open = module(advantage=OUTCOME), module(**gated(0.6)), module(**gated(0.9))
    seen = Metrics()
    fit(plain, 4)
    fit(closed, 4)
    fit(wide_open, 4, seen)
    assert torch.equal(weights(closed), weights(plain))
    assert not torch.equal(weights(wide_open), weights(plain)), "the same values, trusted"
    assert [step["train/gate/weight"] for step in seen.steps] == [0, 0, 0.5, 0.5]


def test_gate_weight_is_zero_in_last_batch_after_warmup() -> None:
    """Annealing counts the batches that train the policy: after 2 of warm-up, 6 as without one."""
    trained, seen, reported = (
        module(**gated(0.9, warmup_steps=2)),
        Metrics(),
        Recorder(lambda module, _: dict(module.result.metrics)),
    )
    trainer = fit(trained, 6, seen, reported)
    assert (trained.rollout_step, trainer.global_step) == (8, 6)
    gate_weights = [step.get("train/gate/weight") for step in seen.steps]
    assert gate_weights == [None, None, 0, 0, 0.5, 0.5, 0.25, 0]
    for metrics, logged in zip(reported.seen, seen.steps, strict=True):  # metrics of this step only
        assert metrics == pytest.approx({name: logged[name] for name in metrics})
        assert ("train/gate/weight" in metrics) == ("train/gate/weight" in logged)
