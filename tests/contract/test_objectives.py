"""Requirements on every objective in conf/objective; a new YAML file is tested automatically."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor
from torch.testing import assert_close

import conf
from contrastive_reasoning.objectives import Objective, ObjectiveInputs
from contrastive_reasoning.objectives.base import join_metrics

FILES = sorted((Path(str(conf.__file__)).parent / "objective").glob("*.yaml"))
PER_TOKEN = ("log_probs", "old_log_probs", "ref_log_probs", "advantages", "mask", "full_kl")
LENGTHS = torch.tensor([7, 1, 4, 6, 2, 0])


def objective_of(path: Path) -> Objective:
    settings: Any = OmegaConf.create({"budget": {"grpo": {"max_completion_tokens": 8}}})
    settings.objective = OmegaConf.load(path)
    settings.objective.pop("defaults", None)  # values that a preset changes are not part of this file
    return instantiate(settings.objective)


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def objective(request: pytest.FixtureRequest) -> Objective:
    return objective_of(request.param)


def inputs(seed: int = 0, with_reference: bool = True) -> ObjectiveInputs:
    generator = torch.Generator().manual_seed(seed)
    old, noise, ref, advantages, kl = torch.randn(5, 6, 7, generator=generator, dtype=torch.float64)
    return ObjectiveInputs(
        log_probs=(old + 0.3 * noise).requires_grad_(),
        old_log_probs=old,
        ref_log_probs=ref if with_reference else None,
        advantages=advantages,
        mask=torch.arange(7) < LENGTHS[:, None],
        full_kl=kl.abs() if with_reference else None,
    )


def rows_of(given: ObjectiveInputs, rows: list[int], objective: Objective) -> ObjectiveInputs:
    """Selected rows, as one micro-batch of an update over all rows."""
    tokens, live = float(given.mask.sum()), float(given.mask.any(dim=1).sum())
    weights = objective.weights(given.mask, rows=live, tokens=tokens)
    parts: dict[str, Any] = {
        name: None if getattr(given, name) is None else getattr(given, name)[rows] for name in PER_TOKEN
    }
    return ObjectiveInputs(**parts, weights=weights[rows], tokens=tokens)


def gradient(objective: Objective, given: ObjectiveInputs) -> Tensor:
    return torch.autograd.grad(objective(given).loss, given.log_probs)[0]


@pytest.mark.parametrize("split", [[[0, 1, 2, 3, 4, 5]], [[0, 3], [2, 1], [4, 5]], [[i] for i in range(6)]])
def test_loss_gradient_and_metrics_do_not_depend_on_microbatch_split(
    objective: Objective, split: list[list[int]]
) -> None:
    given = inputs()
    whole = objective(given)
    parts = [objective(rows_of(given, rows, objective)) for rows in split]
    loss = torch.stack([part.loss for part in parts]).sum()
    assert_close(loss, whole.loss, rtol=1e-12, atol=1e-14)
    assert_close(torch.autograd.grad(loss, given.log_probs)[0], gradient(objective, given), rtol=1e-12, atol=1e-14)
    assert_close(join_metrics([part.metrics for part in parts]), dict(whole.metrics), rtol=1e-12, atol=1e-14)


def test_tokens_outside_mask_are_ignored(objective: Objective) -> None:
    given = inputs()
    changes = {
        name: getattr(given, name).detach().masked_fill(~given.mask, float("nan"))
        for name in ("old_log_probs", "ref_log_probs", "advantages", "full_kl")
    }
    log_probs = given.log_probs.detach().masked_fill(~given.mask, float("nan")).requires_grad_()
    changed = replace(given, log_probs=log_probs, **changes)
    assert_close(objective(changed).loss, objective(given).loss)
    assert_close(gradient(objective, changed), gradient(objective, given))


def test_on_policy_gradient_follows_sign_of_advantage(objective: Objective) -> None:
    given = on_policy(inputs(with_reference=False))
    pushed = gradient(objective, given) * given.advantages
    assert (pushed[given.mask] < 0).all(), "minimising the loss raises what has a positive advantage"
    assert not pushed[~given.mask].any()


def on_policy(given: ObjectiveInputs) -> ObjectiveInputs:
    """The inputs of the first update: every ratio is 1."""
    return replace(given, old_log_probs=given.log_probs.detach())


def test_on_policy_gradient_matches_reinforce(objective: Objective) -> None:
    """The gradient of −Σ A log π, up to a positive factor per rollout; advantages may differ between its steps."""
    given = on_policy(inputs(with_reference=False))
    for i, (row, advantages, kept) in enumerate(
        zip(gradient(objective, given), given.advantages, given.mask, strict=True)
    ):
        if kept.any():
            factors = -row[kept] / advantages[kept]
            assert (factors > 0).all(), i
            assert_close(factors, factors[:1].expand_as(factors), rtol=1e-10, atol=0.0)


def test_zero_advantage_rows_add_zero_loss_and_gradient(objective: Objective) -> None:
    """Without a KL term they therefore need no forward pass. They still count in the mean."""
    given = inputs(with_reference=False)
    given = replace(given, advantages=given.advantages * torch.tensor([1, 0, 1, 0, 1, 1]).double()[:, None])
    assert objective(rows_of(given, [1, 3], objective)).loss.item() == 0
    whole, others = gradient(objective, given), [0, 2, 4, 5]
    assert not whole[[1, 3]].any()
    assert torch.equal(gradient(objective, rows_of(given, others, objective)), whole[others])


@pytest.mark.parametrize("change", ["wider padding", "another order of rows"])
def test_padding_and_row_order_do_not_change_result(objective: Objective, change: str) -> None:
    given, order = inputs(), [4, 2, 5, 0, 3, 1] if change == "another order of rows" else [*range(6)]
    parts: dict[str, Any] = {name: getattr(given, name)[order] for name in PER_TOKEN}
    if change == "wider padding":
        parts = {name: torch.cat([part, part.new_ones(6, 3)], dim=1) for name, part in parts.items()}
        parts["mask"][:, 7:] = False
    parts["log_probs"] = parts["log_probs"].detach().requires_grad_()
    other = ObjectiveInputs(**parts)
    assert_close(objective(other).loss, objective(given).loss, rtol=1e-12, atol=1e-14)
    assert_close(gradient(objective, other)[:, :7], gradient(objective, given)[order], rtol=1e-12, atol=1e-14)
    assert_close(dict(objective(other).metrics), dict(objective(given).metrics), rtol=1e-12, atol=1e-14)


def test_metrics_include_ratio_statistics(objective: Objective) -> None:
    metrics = objective(inputs()).metrics
    assert {"clip_fraction", "ratio_mean", "ratio_max", "approx_kl"} <= set(metrics)
    assert not any(value.requires_grad for value in metrics.values())


def test_extreme_ratios_give_finite_loss_and_gradient(objective: Objective) -> None:
    given = inputs()
    far = given.log_probs.detach() + torch.tensor([500.0, -500.0, 0.0]).double().repeat(6, 3)[:, :7]
    given = replace(given, log_probs=far.requires_grad_())
    outputs = objective(given)
    assert outputs.loss.isfinite()
    assert gradient(objective, given).isfinite().all()
    assert all(value.isfinite() for value in outputs.metrics.values())


def test_empty_mask_or_zero_advantage_gives_zero_loss(objective: Objective) -> None:
    nothing = replace(inputs(), mask=torch.zeros(6, 7, dtype=torch.bool))
    equal = replace(inputs(with_reference=False), advantages=torch.zeros(6, 7, dtype=torch.float64))
    for given in (nothing, equal):
        assert objective(given).loss.item() == 0
        assert not gradient(objective, given).any()


def test_some_objectives_have_equal_gradients_while_every_ratio_is_one() -> None:
    """A single update of a rollout batch, as docs/objectives.md states it; one advantage for each completion."""
    given = inputs(with_reference=False)
    given = replace(given, old_log_probs=given.log_probs.detach(), advantages=given.advantages[:, :1].expand(-1, 7))
    gradients = {path.stem: gradient(objective_of(path), given) for path in FILES}
    for name in ("dapo", "gmpo", "cispo"):
        assert_close(gradients[name], gradients["grpo"], rtol=1e-12, atol=1e-14)
    assert not torch.allclose(gradients["gspo"], gradients["grpo"])
    later = replace(given, log_probs=(given.log_probs.detach() + torch.linspace(0.05, 0.35, 7)).requires_grad_())
    assert len({str(gradient(objective_of(path), later).tolist()) for path in FILES}) == len(FILES) - 1, "of full KL"
