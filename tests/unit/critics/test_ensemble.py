"""EnsembleCritic: mean, disagreement, saving, and training of each member on its own loss."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import pstdev
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

from contrastive_reasoning.critics import (
    CriticBatch,
    EnsembleCritic,
    NumericV2,
    load_critic_weights,
    save_critic,
)
from contrastive_reasoning.critics.base import values_states
from contrastive_reasoning.critics.ensemble import disagreement
from contrastive_reasoning.critics.joint import JointCritic
from contrastive_reasoning.losses import BinaryNCE, ContrastiveLoss, SymmetricInfoNCE, dot
from lightning_modules.critic import CriticPretraining
from tests.quiet import quiet_trainer
from tests.unit.critics.test_joint import SIZES
from tests.unit.lightning_modules.grpo_kit import optimizer
from tests.unit.lightning_modules.test_critic import pairs

MEMBER = partial(NumericV2, digit_dimension=4, hidden_dimension=16, hidden_layers=1, dimension=8, similarity=dot)
ANCHORS, STEPS = 24, 5


def ensemble(size: int = 3, seed: int = 0) -> EnsembleCritic:
    return EnsembleCritic(member=MEMBER, size=size, seed=seed)


batch = partial(pairs, ANCHORS)


def test_ensemble_value_is_mean_of_members() -> None:
    critic, given = ensemble(), batch()
    each = torch.stack([member.pairs(given.state_actions, given.goals) for member in critic.members])
    assert torch.equal(critic.member_pairs(given.state_actions, given.goals), each)
    assert_close(critic.pairs(given.state_actions, given.goals), sum(each) / 3)
    assert_close(critic(given.state_actions, given.goals).diagonal(), sum(each) / 3)
    assert each.std(dim=0).min() > 0, "the members start from different weights"


def test_first_member_equals_single_critic_with_same_seed() -> None:
    for own, single in zip(ensemble(seed=7).members[0].parameters(), MEMBER(seed=7).parameters(), strict=True):
        assert torch.equal(own, single)


def test_values_states_requires_all_members() -> None:
    joint = EnsembleCritic(member=partial(JointCritic, **SIZES, pairs_per_chunk=64), size=2, seed=0)
    assert values_states(joint)
    assert values_states(ensemble()) == values_states(MEMBER(seed=0))
    joint.members[1].values_states = False
    assert not values_states(joint)


def test_ensemble_saves_and_loads_all_members(tmp_path: Path) -> None:
    saved, loaded = ensemble(seed=0), ensemble(seed=1)
    save_critic(saved, tmp_path, {})
    load_critic_weights(loaded, tmp_path)
    for name, weight in saved.state_dict().items():
        assert torch.equal(weight, loaded.state_dict()[name])
    with pytest.raises(ValueError, match=r"members\.2\."):
        load_critic_weights(ensemble(size=2), tmp_path)


@pytest.mark.parametrize(("members", "seed"), [(2, 0), (3, 1), (4, 2)])
def test_disagreement_matches_loops_and_lies_in_unit_interval(members: int, seed: int) -> None:
    logits = 6 * torch.randn(members, 50, generator=torch.Generator().manual_seed(seed)).double()
    deviations = [pstdev(column.sigmoid().tolist()) for column in logits.T]
    assert disagreement(logits) == pytest.approx(2 * sum(deviations) / 50)
    assert 0 <= disagreement(logits) <= 1
    assert disagreement(torch.tensor([[90.0, -90.0], [-90.0, 90.0]])) == 1.0
    assert disagreement(torch.ones(3, 4)) == disagreement(torch.zeros(3, 0)) == 0.0


def pretraining(critic: nn.Module, loss: ContrastiveLoss, negatives: int | None) -> CriticPretraining:
    settings: dict[str, Any] = {"betas": (0.9, 0.999), "weight_decay": 0.01, "warmup_steps": 1, "schedule": "cosine"}
    return CriticPretraining(
        critic=critic,
        loss=loss,
        optimizer=optimizer(3e-3, total_steps=STEPS, **settings),
        negatives_per_anchor=negatives,
        seed=5,
        gradient_clip=None,
        max_skipped_steps=0,
    )


class OnlyMember(CriticPretraining):
    """Slow reference: trains one member alone, on the same bootstrap samples as in the ensemble."""

    index: int

    def training_step(self, batch: CriticBatch, batch_idx: int) -> Tensor:
        own = self._bootstrapped(batch, self.index)
        return self._loss_and_metrics(own, f"train member {self.index}", self.global_step)[0]


def fit(module: CriticPretraining, folder: Path) -> dict[str, Any]:
    trainer = quiet_trainer(max_steps=STEPS, default_root_dir=folder)
    batches: Any = [batch()] * STEPS
    trainer.fit(module, DataLoader(batches, batch_size=None))
    return dict(trainer.callback_metrics)


@pytest.mark.parametrize(
    ("loss", "negatives"), [(SymmetricInfoNCE(temperature=1.0), None), (BinaryNCE(temperature=1.0), 3)]
)
def test_each_member_trains_as_if_alone(tmp_path: Path, loss: ContrastiveLoss, negatives: int | None) -> None:
    together = ensemble(size=2, seed=0)
    metrics = fit(pretraining(together, loss, negatives), tmp_path)
    assert metrics["train/critic/loss"] > 0
    assert 0 <= metrics["train/critic/categorical_accuracy"] <= 1
    for index, member in enumerate(ensemble(size=2, seed=0).members):
        alone = pretraining(member, loss, negatives)
        alone.__class__ = OnlyMember
        alone.index = index  # pyright: ignore
        fit(alone, tmp_path)
        for name, weight in member.state_dict().items():
            assert torch.equal(weight, together.members[index].state_dict()[name]), name


def test_members_bootstrap_different_anchors() -> None:
    module = pretraining(ensemble(), BinaryNCE(temperature=1.0), None)
    module.trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    first, second = (module._bootstrapped(batch(), member) for member in (0, 1))
    assert not torch.equal(first.positive, second.positive)
    rows = first.positive.long().argmax(dim=1)
    assert torch.equal(first.state_actions, batch().state_actions[rows]), "an anchor keeps its own row of pairs"
