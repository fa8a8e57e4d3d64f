"""Contrastive pretraining under the real Trainer: learning, resuming, and correct metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks.cost import Cost, Throughput
from contrastive_reasoning.critics import CriticBatch, CriticOracleBatch, NumericV2
from contrastive_reasoning.losses import BinaryNCE, ContrastiveLoss, SymmetricInfoNCE, dot
from contrastive_reasoning.tasks.countdown.states import encode_state
from lightning_modules.critic import CriticPretraining
from lightning_modules.metrics import OracleMetrics, batch_metrics
from lightning_modules.optim import SKIPPED
from tests.quiet import quiet_trainer
from tests.unit.lightning_modules.automatic_kit import assert_resumes_with_dropout
from tests.unit.lightning_modules.grpo_kit import assert_equal, optimizer

PAIRS = 64


class Steps(DummyLogger):
    """Records the steps at which each metric of training is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, list[int]] = {}

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        for name in metrics:
            if name.startswith("train/"):
                self.steps.setdefault(name, []).append(step)


def pairs(count: int = PAIRS) -> CriticBatch:
    """By default 64 states, each with its own goal."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randint(1, 50, (count, 3), generator=generator).tolist()
    positive = torch.eye(count, dtype=torch.bool)
    return CriticBatch(
        state_actions=torch.tensor([encode_state(state) for state in states]),
        goals=torch.arange(10, 10 + count),
        positive=positive,
        candidate=torch.ones_like(positive),
    )


def oracle_states() -> CriticOracleBatch:
    """Each state with its own goal (reachable) and with its neighbour's (not)."""
    batch = pairs()
    return CriticOracleBatch(
        state_actions=torch.cat([batch.state_actions, batch.state_actions]),
        goals=torch.cat([batch.goals, batch.goals.roll(1)]),
        label=torch.arange(2 * PAIRS) < PAIRS,
        chance=torch.arange(2 * PAIRS) / (2 * PAIRS),
        depth=torch.arange(2 * PAIRS) % 2 + 1,
        problem=torch.arange(2 * PAIRS) % 4,
    )


def loader(batch: Any, times: int) -> DataLoader[Any]:
    return DataLoader([batch] * times, batch_size=None)


def numeric(seed: int) -> NumericV2:
    return NumericV2(digit_dimension=8, hidden_dimension=64, hidden_layers=1, dimension=32, similarity=dot, seed=seed)


def module(
    *,
    critic: torch.nn.Module | None = None,
    loss: ContrastiveLoss | None = None,
    negatives_per_anchor: int | None = None,
    total_steps: int = 60,
    epsilon: float = 1e-8,
    max_skipped_steps: int = 0,
) -> CriticPretraining:
    settings: dict[str, Any] = {"betas": (0.9, 0.999), "weight_decay": 0.01, "warmup_steps": 5, "schedule": "cosine"}
    return CriticPretraining(
        critic=critic or numeric(seed=0),
        loss=loss or SymmetricInfoNCE(temperature=1.0),
        optimizer=optimizer(3e-3, epsilon=epsilon, total_steps=total_steps, **settings),
        negatives_per_anchor=negatives_per_anchor,
        seed=0,
        gradient_clip=None,
        max_skipped_steps=max_skipped_steps,
    )


@pytest.mark.parametrize(
    ("steps", "changes", "accuracy", "auroc"),
    [
        (60, {}, 0.97, 0.97),
        (150, {"loss": BinaryNCE(temperature=1.0), "negatives_per_anchor": 8, "total_steps": 150}, 0.9, 0.9),
    ],
    ids=["all pairs", "drawn negatives"],
)
def test_critic_memorises_64_pairs_and_logs_metrics(
    steps: int, changes: dict[str, Any], accuracy: float, auroc: float
) -> None:
    trainer = quiet_trainer(max_steps=steps, val_check_interval=steps)
    trainer.fit(module(**changes), loader(pairs(), steps), [loader(pairs(), 1), loader(oracle_states(), 2)])
    metrics = trainer.callback_metrics
    assert metrics["val/critic/categorical_accuracy"] > accuracy
    assert metrics["train/critic/categorical_accuracy"] > accuracy
    assert metrics["train/critic/logits_positive"] > metrics["train/critic/logits_negative"]
    assert metrics["train/throughput/pairs_per_second"] > 0
    assert min(metrics["val/oracle/auroc_depth1"], metrics["val/oracle/auroc_depth2"]) > auroc
    assert {name for name in metrics if name.startswith("val/")} == {
        "val/critic/loss",
        "val/critic/categorical_accuracy",
        "val/oracle/auroc_depth1",
        "val/oracle/auroc_depth2",
        "val/oracle/auprc",
        "val/oracle/ece",
        "val/oracle/sibling_ranking",
        "val/oracle/rank_correlation_depth1",
        "val/oracle/rank_correlation_depth2",
    }


def test_drawn_negatives_have_same_scores_as_all_pairs() -> None:
    batch, drawing, complete = pairs(), module(negatives_per_anchor=3), module()
    counts = drawing.counted(batch, "train", 7)
    assert counts.sum(dim=1).eq(4).all()
    assert torch.equal(counts, drawing.counted(batch, "train", 7))
    assert not torch.equal(counts, drawing.counted(batch, "train", 8))
    torch.testing.assert_close(drawing._scores(batch, counts)[counts], complete._scores(batch, batch.candidate)[counts])


def test_resume_is_bitwise_equal_with_drawn_negatives_and_dropout(tmp_path: Path) -> None:
    data: dict[str, Any] = {"train_dataloaders": loader(pairs(), 6)}
    assert_resumes_with_dropout(lambda: module(negatives_per_anchor=8), lambda: data, tmp_path)


@pytest.mark.parametrize(("every", "steps"), [(1, [0, 1, 2, 3, 4, 5, 6]), (3, [2, 5])])
def test_metrics_are_logged_at_their_steps_only_and_training_is_equal(
    tmp_path: Path, every: int, steps: list[int]
) -> None:
    """The other steps do not call ``log``, which would compute the metrics."""
    logged, plain, logger = module(), module(), Steps()
    calls: list[str] = []
    through = logged.log

    def log(name: str, *arguments: Any, **options: Any) -> None:
        if name.startswith("train/"):
            calls.append(name)
        through(name, *arguments, **options)

    logged.log = log  # type: ignore[method-assign]
    watchers = [Throughput(window=2, tokens=None, peak_flops=None), Cost()]
    settings: dict[str, Any] = {"limit_val_batches": 0, "default_root_dir": tmp_path, "max_steps": 7}
    quiet_trainer(log_every_n_steps=every, logger=logger, callbacks=watchers, **settings).fit(
        logged, loader(pairs(), 7)
    )
    quiet_trainer(**settings).fit(plain, loader(pairs(), 7))
    names = {"train/critic/loss", "train/throughput/pairs_per_second", "train/spent/seconds", SKIPPED}
    assert names <= logger.steps.keys()
    assert all(seen == steps for seen in logger.steps.values())
    assert len(calls) == len(set(calls)) * len(steps)
    assert names <= {*calls}
    assert_equal(logged.state_dict(), plain.state_dict())


def test_zero_negatives_per_anchor_raises() -> None:
    with pytest.raises(ValueError, match=r"negatives_per_anchor.*0"):
        module(negatives_per_anchor=0)


def test_batch_metrics_match_hand_computed_values() -> None:
    logits = torch.tensor([[2.0, 0.0], [1.0, -1.0], [5.0, 5.0]])
    positive = torch.tensor([[True, False], [False, True], [False, False]])
    metrics = batch_metrics(logits, positive, torch.tensor([[True, True], [True, True], [True, False]]))
    assert metrics["categorical_accuracy"].item() == 0.5
    assert metrics["logits_positive"].item() == 0.5
    assert metrics["logits_negative"].item() == 2.0
    expected = torch.stack([logits[0].logsumexp(0), logits[1].logsumexp(0), torch.tensor(5.0)]).mean()
    torch.testing.assert_close(metrics["logsumexp"], expected)


def states(label: Tensor, **columns: Tensor) -> CriticOracleBatch:
    """States of one problem and depth, unless given."""
    settings: dict[str, Any] = {"chance": label.float(), "depth": label.long() * 0 + 1, "problem": label.long() * 0}
    return CriticOracleBatch(state_actions=None, goals=None, label=label, **settings | columns)


def oracle_metrics(scores: Tensor, batch: CriticOracleBatch, batches: int = 1) -> dict[str, Tensor]:
    metrics = OracleMetrics()
    for rows in torch.arange(len(scores)).chunk(batches):
        part = {name: getattr(batch, name)[rows] for name in ("label", "chance", "depth", "problem")}
        metrics.update(scores[rows], replace(batch, **part))
    found = metrics.compute()
    assert metrics.compute() == {}
    return found


def test_sibling_ranking_equals_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (60,), generator=generator).float()
    label = torch.rand(60, generator=generator) < 0.3
    group = torch.randint(0, 7, (60,), generator=generator)
    right = []
    for i in range(60):
        for j in range(60):
            if group[i] == group[j] and label[i] and not label[j]:
                right.append(1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    found = oracle_metrics(scores, states(label, problem=group), batches=2)
    assert found["sibling_ranking"].item() == pytest.approx(sum(right) / len(right))
    assert oracle_metrics(scores, states(group == 0, problem=group))["sibling_ranking"].isnan(), "never both kinds"


def test_oracle_metrics_distinguish_huge_logits() -> None:
    label = torch.arange(8) < 4
    found = oracle_metrics(torch.where(label, 5000.0, 4999.0), states(label))
    assert found["auroc_depth1"].item() == found["sibling_ranking"].item() == 1.0
    assert "auroc_depth2" not in found


def test_rank_correlation_is_spearmans_per_depth() -> None:
    generator = torch.Generator().manual_seed(1)
    scores, chance = torch.randn(40, generator=generator), torch.rand(40, generator=generator)
    depth = torch.arange(40) % 2 + 1
    found = oracle_metrics(scores, states(chance > 0.5, chance=chance, depth=depth))
    for at in (1, 2):
        x, y = (column[depth == at].double().argsort().argsort().double() for column in (scores, chance))
        expected = torch.corrcoef(torch.stack([x, y]))[0, 1]
        assert found[f"rank_correlation_depth{at}"].item() == pytest.approx(expected.item())
