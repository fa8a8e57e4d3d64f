"""Contrastive pretraining under the real Trainer: learning, resuming, and correct metrics."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import lightning as L
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
from tests.unit.lightning_modules.grpo_kit import optimizer

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


def trainer(steps: int, folder: Path) -> L.Trainer:
    return quiet_trainer(max_steps=steps, val_check_interval=steps, log_every_n_steps=1, default_root_dir=folder)


def test_critic_memorises_64_pairs_and_logs_metrics(tmp_path: Path) -> None:
    fit = trainer(60, tmp_path)
    fit.fit(module(), loader(pairs(), 60), [loader(pairs(), 1), loader(oracle_states(), 2)])
    metrics = fit.callback_metrics
    assert metrics["train/critic/categorical_accuracy"] > 0.97
    assert metrics["val/critic/categorical_accuracy"] > 0.97
    assert metrics["train/critic/logits_positive"] > metrics["train/critic/logits_negative"]
    assert metrics["train/throughput/pairs_per_second"] > 0
    assert metrics["val/oracle/auroc_depth1"] > 0.97
    oracle = {"auroc_depth1", "auroc_depth2", "auprc", "ece", "sibling_ranking"}
    oracle |= {"rank_correlation_depth1", "rank_correlation_depth2"}
    names = {f"val/oracle/{name}" for name in oracle}
    names |= {"val/critic/loss", "val/critic/categorical_accuracy"}
    assert {name for name in metrics if name.startswith("val/")} == names


def test_critic_learns_from_drawn_negatives(tmp_path: Path) -> None:
    fit = trainer(150, tmp_path)
    fit.fit(
        module(loss=BinaryNCE(temperature=1.0), negatives_per_anchor=8, total_steps=150),
        loader(pairs(), 150),
        [loader(pairs(), 1), loader(oracle_states(), 1)],
    )
    assert fit.callback_metrics["val/critic/categorical_accuracy"] > 0.9
    assert fit.callback_metrics["val/oracle/auroc_depth2"] > 0.9


def test_drawn_negatives_have_same_scores_as_all_pairs() -> None:
    batch, drawing, complete = pairs(), module(negatives_per_anchor=3), module()
    counts = drawing.counted(batch, "train", 7)
    assert counts.sum(dim=1).eq(4).all()
    assert torch.equal(counts, drawing.counted(batch, "train", 7))
    assert not torch.equal(counts, drawing.counted(batch, "train", 8))
    torch.testing.assert_close(drawing._scores(batch, counts)[counts], complete._scores(batch, batch.candidate)[counts])


def test_resume_is_bitwise_equal_with_drawn_negatives_and_dropout(tmp_path: Path) -> None:
    """Random draws depend only on the step, not on the global generator."""

    def with_dropout() -> CriticPretraining:
        critic = numeric(seed=0)
        head = next(part for part in critic.modules() if isinstance(part, torch.nn.Linear))
        head.register_forward_hook(lambda part, _, output: torch.dropout(output, 0.5, part.training))
        return module(critic=critic, negatives_per_anchor=8)

    uninterrupted, resumed = with_dropout(), with_dropout()
    torch.manual_seed(1)
    trainer(12, tmp_path).fit(uninterrupted, loader(pairs(), 12))
    first = trainer(7, tmp_path)
    first.fit(with_dropout(), loader(pairs(), 7))
    first.save_checkpoint(tmp_path / "at_7.ckpt")
    torch.manual_seed(2)
    trainer(12, tmp_path).fit(resumed, loader(pairs(), 12), ckpt_path=str(tmp_path / "at_7.ckpt"), weights_only=True)
    for name, weight in uninterrupted.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


@pytest.mark.parametrize(("every", "logged"), [(1, [0, 1, 2, 3, 4, 5, 6]), (3, [2, 5])])
def test_steps_without_logging_skip_log_calls_and_train_equally(tmp_path: Path, every: int, logged: list[int]) -> None:
    calls: list[str] = []
    watchers = [Throughput(window=2, tokens=None, peak_flops=None), Cost()]
    learner, plain = module(), module()
    through = learner.log

    def log(name: str, *arguments: Any, **options: Any) -> None:
        if name.startswith("train/"):
            calls.append(name)
        through(name, *arguments, **options)

    learner.log = log  # type: ignore[method-assign]
    logger = Steps()
    settings: dict[str, Any] = {"limit_val_batches": 0, "default_root_dir": tmp_path, "max_steps": 7}
    quiet_trainer(log_every_n_steps=every, logger=logger, callbacks=watchers, **settings).fit(
        learner, loader(pairs(), 7)
    )
    quiet_trainer(**settings).fit(plain, loader(pairs(), 7))
    names = {"train/critic/loss", "train/throughput/pairs_per_second", "train/spent/seconds", SKIPPED}
    assert all(calls.count(name) == len(logged) for name in names)
    assert names <= logger.steps.keys()
    assert all(steps == logged for steps in logger.steps.values())
    assert len(calls) == len(set(calls)) * len(logged)
    for name, weight in plain.state_dict().items():
        assert torch.equal(weight, learner.state_dict()[name]), name


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
    zeros = torch.zeros_like(group)
    states = CriticOracleBatch(
        state_actions=None, goals=None, label=label, chance=label.float(), depth=zeros, problem=group
    )
    assert sibling_ranking(scores, states, batches=2) == pytest.approx(sum(right) / len(right))
    states.label[:] = group == 0
    assert isnan(sibling_ranking(scores, states, batches=1)), "no group has both kinds"


def sibling_ranking(scores: Tensor, states: CriticOracleBatch, *, batches: int) -> float:
    metrics = OracleMetrics()
    for rows in torch.arange(len(scores)).chunk(batches):
        part = {name: getattr(states, name)[rows] for name in ("label", "chance", "depth", "problem")}
        metrics.update(scores[rows], replace(states, **part))
    return metrics.compute()["sibling_ranking"].item()


def test_oracle_metrics_distinguish_huge_logits() -> None:
    metrics = OracleMetrics()
    batch = oracle_states()
    batch.depth[:] = 1
    metrics.update(torch.where(batch.label, 5000.0, 4999.0), batch)
    values = metrics.compute()
    assert values["auroc_depth1"].item() == 1.0
    assert values["sibling_ranking"].item() == 1.0
    assert "auroc_depth2" not in values
    assert metrics.compute() == {}


def test_rank_correlation_is_spearmans_per_depth() -> None:
    generator = torch.Generator().manual_seed(1)
    scores, chance = torch.randn(40, generator=generator), torch.rand(40, generator=generator)
    depth, problem = torch.arange(40) % 2 + 1, torch.zeros(40, dtype=torch.long)
    metrics = OracleMetrics()
    label = chance > 0.5
    metrics.update(
        scores,
        CriticOracleBatch(state_actions=None, goals=None, label=label, chance=chance, depth=depth, problem=problem),
    )
    found = metrics.compute()
    for at in (1, 2):
        x, y = (column[depth == at].double().argsort().argsort().double() for column in (scores, chance))
        expected = torch.corrcoef(torch.stack([x, y]))[0, 1]
        assert found[f"rank_correlation_depth{at}"].item() == pytest.approx(expected.item())
