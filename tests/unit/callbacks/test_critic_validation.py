"""Figures and probes of a critic at each validation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from callbacks.critic_validation import (
    ActionProbe,
    Calibration,
    GeometryProbe,
    SimilarityHeatmap,
    diagram,
    positive_diagonal,
    wilson,
    with_shuffled_actions,
)
from callbacks.projections import EmbeddingProjection
from contrastive_reasoning.critics import CriticBatch, NumericV1, NumericV2
from contrastive_reasoning.critics.calibration import ReliabilityBins
from contrastive_reasoning.losses import dot
from datamodules.oracle_states import array_form, oracle_batches, target_form
from lightning_modules.critic import CriticPretraining
from lightning_modules.metrics import OracleMetrics
from tests.quiet import quiet_trainer
from tests.unit.callbacks.kit import Album
from tests.unit.lightning_modules import test_critic


def watchers() -> list[L.Callback]:
    return [
        SimilarityHeatmap(size=8),
        EmbeddingProjection(points=20, perplexity=5.0, seed=0),
        ActionProbe(),
        GeometryProbe(components=4, folds=3),
        Calibration(bins=15),
    ]


def v1_batch(seed: int) -> CriticBatch:
    rng = torch.Generator().manual_seed(seed)
    arrays = torch.randint(0, 50, (12, 3, 6), generator=rng)
    diagonal = torch.eye(12, dtype=torch.bool)
    return CriticBatch(
        state_actions=arrays[:, :2], goals=arrays[:, 2], positive=diagonal, candidate=torch.ones_like(diagonal)
    )


SIZE: dict[str, Any] = {"digit_dimension": 2, "hidden_dimension": 8, "hidden_layers": 1, "dimension": 4}


def fit(callbacks: list[L.Callback], folder: Path) -> tuple[CriticPretraining, Album]:
    module, album = test_critic.module(critic=NumericV1(**SIZE, similarity=dot, seed=0)), Album()
    trainer = quiet_trainer(
        max_steps=4, val_check_interval=2, logger=album, callbacks=callbacks, default_root_dir=folder
    )
    validation = [[v1_batch(9)], oracle_batches(array_form, batch_size=16, problems=2)]
    loaders = [DataLoader(batches, batch_size=None) for batches in validation]  # pyright: ignore
    training = DataLoader([v1_batch(seed) for seed in range(4)], batch_size=None)  # pyright: ignore
    trainer.fit(module, training, loaders)
    return module, album


def test_pictures_and_probes_are_logged_at_each_validation_and_only_watch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    watched, album = fit(watchers(), tmp_path)
    after = torch.random.get_rng_state()
    torch.manual_seed(0)
    alone, _ = fit([], tmp_path)
    assert torch.equal(torch.random.get_rng_state(), after)
    for name, weight in alone.state_dict().items():
        assert torch.equal(weight, watched.state_dict()[name]), name
    assert {name: len(figures) for name, figures in album.figures.items()} == {
        "critic/similarity": 2,
        "critic/goals": 2,
        "critic/states": 2,
        "critic/calibration": 2,
    }
    probes = {name for name in album.metrics if name.startswith("val/probe/")}
    assert probes == {
        f"val/probe/{name}"
        for name in (
            *("accuracy_actions_shuffled", "parity_from_components", "alignment"),
            *("positive_cosine", "uniformity", "effective_rank"),
        )
    }
    error = float(album.figures["critic/calibration"][-1][1].get_suptitle().rpartition(" ")[2])
    assert error == pytest.approx(album.metrics["val/oracle/ece"], abs=6e-4)
    assert album.metrics["val/probe/alignment"] == pytest.approx(2 - 2 * album.metrics["val/probe/positive_cosine"])


def test_only_the_action_moves_where_there_is_a_start() -> None:
    arrays = torch.arange(3 * 2 * 6).reshape(3, 2, 6)
    shuffled = with_shuffled_actions(arrays)
    assert torch.equal(shuffled[:, 0], arrays[:, 0])
    assert torch.equal(shuffled[:, 1], arrays[[1, 2, 0], 1])
    assert torch.equal(with_shuffled_actions(arrays[:, 0]), arrays[[1, 2, 0], 0])
    assert torch.equal(with_shuffled_actions({"input_ids": arrays})["input_ids"], arrays[[1, 2, 0]])


def test_the_diagonal_is_positive_and_no_goal_stands_twice() -> None:
    positive = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
    rows, columns = positive_diagonal(positive, 3)
    assert positive[rows, columns].all()
    assert len(set(columns.tolist())) == len(columns)
    assert positive_diagonal(torch.zeros(3, 3, dtype=torch.bool), 2)[0].shape == (0,)


def test_goals_that_are_targets_have_a_parity() -> None:
    critic = NumericV2(**SIZE, similarity=dot, seed=0)
    states = oracle_batches(target_form, batch_size=24, problems=3)[0]
    diagonal = torch.eye(24, dtype=torch.bool)
    batch = CriticBatch(
        state_actions=states.state_actions, goals=torch.arange(24), positive=diagonal, candidate=diagonal | True
    )
    measured = GeometryProbe(components=4, folds=3).measure(critic, batch)
    assert 0 <= measured["parity_from_components"] <= 1


def test_its_bins_are_of_equal_width_and_as_many_as_are_asked_for() -> None:
    """0.1, 0.2 and 0.9, of which the first alone is true: by tens (0.9 + 0.2 + 0.9) / 3, by halves (0.7 + 0.9) / 3."""
    assert error_by(10) == pytest.approx(2.0 / 3, abs=6e-4)
    assert error_by(2) == pytest.approx(1.6 / 3, abs=6e-4)


def error_by(bins: int) -> float:
    metrics, album = OracleMetrics(), Album()
    metrics.ece.update(torch.tensor([0.1, 0.2, 0.9]) + 1e-3, torch.tensor([1, 0, 0]))
    trainer: Any = SimpleNamespace(is_global_zero=True, sanity_checking=False, global_step=3, loggers=[album])
    Calibration(bins=bins).on_validation_epoch_end(trainer, SimpleNamespace(oracle_metrics=metrics))
    ((_, figure),) = album.figures["critic/calibration"]
    return float(figure.get_suptitle().rpartition(" ")[2])


@pytest.mark.parametrize("module", [object(), SimpleNamespace(oracle_metrics=OracleMetrics())])
def test_without_an_oracle_or_its_states_nothing_is_drawn(module: Any) -> None:
    album = Album()
    trainer: Any = SimpleNamespace(is_global_zero=True, sanity_checking=False, global_step=3, loggers=[album])
    Calibration(bins=15).on_validation_epoch_end(trainer, module)
    assert not album.figures


def test_a_diagram_has_shares_with_wilsons_intervals_above_counts() -> None:
    """0 of 10: 0 … 0.2775; 500 of 1000: 0.4690 … 0.5310 (E. B. Wilson 1927)."""
    found = ReliabilityBins(
        predicted=torch.tensor([0.1, 0.8]), true=torch.tensor([0.0, 0.5]), count=torch.tensor([10, 1000])
    )
    upper, lower = diagram(found, step=3).axes
    segments: Any = lower.collections[0]
    assert [segment[1][1] for segment in segments.get_segments()] == [10, 1000]
    assert upper.lines[1].get_ydata() == pytest.approx([0.0, 0.5])
    low, high = wilson(found)
    assert low.tolist() == pytest.approx([0.0, 0.4690], abs=1e-3)
    assert high.tolist() == pytest.approx([0.2775, 0.5310], abs=1e-3)
