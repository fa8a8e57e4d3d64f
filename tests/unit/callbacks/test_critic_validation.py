"""Figures and probes of a critic at each validation."""

from __future__ import annotations

from math import isnan
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
    DataCounts,
    GeometryProbe,
    SimilarityHeatmap,
    diagram,
    positive_diagonal,
    shuffles,
)
from callbacks.projections import EmbeddingProjection
from contrastive_reasoning.critics import CriticBatch, NumericV1, NumericV2
from contrastive_reasoning.critics.calibration import ReliabilityBins
from contrastive_reasoning.losses import dot
from datamodules.oracle_states import array_form, oracle_batches
from lightning_modules.critic import CriticPretraining
from lightning_modules.metrics import OracleMetrics
from tests.quiet import quiet_trainer
from tests.unit.callbacks.kit import Album
from tests.unit.lightning_modules import test_critic
from tests.unit.lightning_modules.grpo_kit import assert_equal


def watchers() -> list[L.Callback]:
    return [
        SimilarityHeatmap(size=8),
        EmbeddingProjection(points=20, perplexity=5.0, seed=0),
        ActionProbe(),
        GeometryProbe(components=4, folds=3),
        Calibration(bins=15),
    ]


def batch_of(state_actions: torch.Tensor, goals: torch.Tensor) -> CriticBatch:
    """Each state's own goal is its only positive."""
    diagonal = torch.eye(len(goals), dtype=torch.bool)
    return CriticBatch(state_actions=state_actions, goals=goals, positive=diagonal, candidate=diagonal | True)


def v1_batch(seed: int) -> CriticBatch:
    arrays = torch.randint(0, 50, (12, 3, 6), generator=torch.Generator().manual_seed(seed))
    return batch_of(arrays[:, :2], arrays[:, 2])


SIZE: dict[str, Any] = {"digit_dimension": 2, "hidden_dimension": 8, "hidden_layers": 1, "dimension": 4}
NO_TRAINER: Any = None


def run(callbacks: list[L.Callback], folder: Path, *, train: bool = True) -> tuple[CriticPretraining, Album]:
    """Trains with two validations, or validates an untrained critic."""
    module, album = test_critic.module(critic=NumericV1(**SIZE, similarity=dot, seed=0)), Album()
    trainer = quiet_trainer(
        max_steps=4, val_check_interval=2, logger=album, callbacks=callbacks, default_root_dir=folder
    )
    data: list[Any] = [[v1_batch(9)], oracle_batches(array_form, batch_size=16, problems=2)]
    loaders = [DataLoader(batches, batch_size=None) for batches in data]
    if train:
        training: Any = [v1_batch(seed) for seed in range(4)]
        trainer.fit(module, DataLoader(training, batch_size=None), loaders)
    else:
        trainer.validate(module, loaders, verbose=False)
    return module, album


def test_validation_logs_figures_and_probes_and_leaves_weights_unchanged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    watched, album = run(watchers(), tmp_path)
    after = torch.random.get_rng_state()
    torch.manual_seed(0)
    alone, _ = run([], tmp_path)
    assert torch.equal(torch.random.get_rng_state(), after)
    assert_equal(watched.state_dict(), alone.state_dict())
    names = ("similarity", "goals", "states", "calibration")
    assert {name: len(figures) for name, figures in album.figures.items()} == {f"critic/{name}": 2 for name in names}
    probes = {name for name in album.metrics if name.startswith("val/probe/")}
    assert probes == {
        f"val/probe/{name}"
        for name in (
            *("accuracy_actions_shuffled", "accuracy_starts_shuffled", "parity_from_components", "alignment"),
            *("positive_cosine", "uniformity", "effective_rank"),
        )
    }
    error = float(album.figures["critic/calibration"][-1][1].get_suptitle().rpartition(" ")[2])
    assert error == pytest.approx(album.metrics["val/oracle/ece"], abs=6e-4)
    assert album.metrics["val/probe/alignment"] == pytest.approx(2 - 2 * album.metrics["val/probe/positive_cosine"])


def test_embeddings_of_untrained_critic_are_not_drawn(tmp_path: Path) -> None:
    _, album = run(watchers(), tmp_path, train=False)
    assert album.figures.keys() == {"critic/similarity", "critic/calibration"}


def test_shuffles_permutes_starts_and_actions_separately() -> None:
    arrays = torch.arange(3 * 2 * 6).reshape(3, 2, 6)
    shuffled = shuffles(arrays)
    assert shuffled.keys() == {"actions", "starts"}
    for moved, name in ((0, "starts"), (1, "actions")):
        assert torch.equal(shuffled[name][:, 1 - moved], arrays[:, 1 - moved])
        assert torch.equal(shuffled[name][:, moved], arrays[[1, 2, 0], moved])
    whole, tokens = shuffles(arrays[:, 0]), shuffles({"input_ids": arrays})
    assert whole.keys() == tokens.keys() == {"actions"}
    assert torch.equal(whole["actions"], arrays[[1, 2, 0], 0])
    assert torch.equal(tokens["actions"]["input_ids"], arrays[[1, 2, 0]])


class ReadsOneOfTwo(NumericV1):
    """Embeds the start's (0) or the action's (1) array as the normalised array itself, and the goal alike."""

    def __init__(self, part: int) -> None:
        super().__init__(**SIZE, similarity=dot, seed=0)
        self.part = part

    def encode_state_action(self, state_actions: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(state_actions[:, self.part].float(), dim=1)

    def encode_goal(self, goals: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(goals.float(), dim=1)


def logging_module(**parts: Any) -> tuple[Any, dict[str, float]]:
    """A module with these parts, and what it logs."""
    logged: dict[str, float] = {}
    return SimpleNamespace(log=lambda name, value, **_: logged.update({name: float(value)}), **parts), logged


@pytest.mark.parametrize(("part", "expected"), [(0, (1.0, 0.0)), (1, (0.0, 1.0))])
def test_action_probe_accuracy_drops_only_when_the_part_read_is_shuffled(
    part: int, expected: tuple[float, float]
) -> None:
    arrays = torch.randint(0, 50, (12, 6), generator=torch.Generator().manual_seed(0))
    batch = batch_of(torch.stack([arrays, arrays], dim=1), arrays)
    module, logged = logging_module(critic=ReadsOneOfTwo(part), counted=lambda batch, *_: batch.candidate)
    ActionProbe().on_validation_batch_end(NO_TRAINER, module, None, batch, 0)
    names = ("val/probe/accuracy_actions_shuffled", "val/probe/accuracy_starts_shuffled")
    assert tuple(logged[name] for name in names) == expected


def test_positive_diagonal_selects_positives_with_distinct_goals() -> None:
    positive = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
    rows, columns = positive_diagonal(positive, 3)
    assert positive[rows, columns].all()
    assert len(set(columns.tolist())) == len(columns)
    assert positive_diagonal(torch.zeros(3, 3, dtype=torch.bool), 2)[0].shape == (0,)


class PlainNumber(NumericV2):
    """Embeds a target as its parity and its size."""

    def encode_goal(self, goals: torch.Tensor) -> torch.Tensor:
        return torch.stack([goals % 2, goals / 1000, 0 * goals, 0 * goals], dim=1).float()


def test_parity_probe_uses_all_distinct_goals_of_a_validation() -> None:
    probe = GeometryProbe(components=2, folds=3)
    critic = PlainNumber(**SIZE, similarity=dot, seed=0)
    assert probe.parity(critic, torch.arange(24)) == 1.0
    assert isnan(probe.parity(critic, torch.tensor([3, 4] * 12))), "two goals are too few, however often they are drawn"
    module, logged = logging_module(critic=critic)
    for number in range(4):
        batch = batch_of(torch.zeros(6, 6, dtype=torch.long), torch.arange(6) + 6 * number)
        probe.on_validation_batch_end(NO_TRAINER, module, None, batch, number)
    seen: list[torch.Tensor] = []
    probe.parity = lambda critic, goals: seen.append(goals) or 1.0  # type: ignore[method-assign]
    probe.on_validation_epoch_end(NO_TRAINER, module)
    assert logged["val/probe/parity_from_components"] == 1.0
    assert torch.equal(seen[0], torch.arange(24))
    probe.on_validation_epoch_end(NO_TRAINER, module)
    assert len(seen) == 1, "the next validation begins without them"


def test_data_counts_logs_drawn_trajectories_if_datamodule_counts_them() -> None:
    module, logged = logging_module()
    counting = SimpleNamespace(count_drawn=lambda batches: {"trajectories": 16 * batches})
    for datamodule in (counting, None, object()):
        trainer: Any = SimpleNamespace(global_step=3, datamodule=datamodule)
        DataCounts().on_validation_epoch_end(trainer, module)
        assert logged == {"train/data/trajectories": 48.0}


def calibration(bins: int, module: Any) -> Album:
    """The figures of a validation of this module."""
    album = Album()
    trainer: Any = SimpleNamespace(is_global_zero=True, sanity_checking=False, global_step=3, loggers=[album])
    Calibration(bins=bins).on_validation_epoch_end(trainer, module)
    return album


@pytest.mark.parametrize(("bins", "expected"), [(10, 2.0 / 3), (2, 1.6 / 3)])
def test_calibration_uses_given_number_of_equal_width_bins(bins: int, expected: float) -> None:
    """Predictions 0.1, 0.2, 0.9, of which only the first is true.

    The error is (0.9 + 0.2 + 0.9) / 3 for ten bins and (0.7 + 0.9) / 3 for two.
    """
    metrics, label = OracleMetrics(), torch.tensor([True, False, False])
    metrics.update((torch.tensor([0.1, 0.2, 0.9]) + 1e-3).logit(), test_critic.states(label))
    ((_, figure),) = calibration(bins, SimpleNamespace(oracle_metrics=metrics)).figures["critic/calibration"]
    assert float(figure.get_suptitle().rpartition(" ")[2]) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize("module", [object(), SimpleNamespace(oracle_metrics=OracleMetrics())])
def test_calibration_without_oracle_states_draws_nothing(module: Any) -> None:
    assert not calibration(15, module).figures


def test_diagram_shows_shares_with_wilson_intervals_above_counts() -> None:
    """0 of 10: 0 … 0.2775; 500 of 1000: 0.4690 … 0.5310 (E. B. Wilson 1927)."""
    found = ReliabilityBins(
        predicted=torch.tensor([0.1, 0.8]), true=torch.tensor([0.0, 0.5]), count=torch.tensor([10, 1000])
    )
    upper, lower = diagram(found, step=3).axes
    segments: Any = lower.collections[0]
    assert [segment[1][1] for segment in segments.get_segments()] == [10, 1000]
    assert upper.lines[1].get_ydata() == pytest.approx([0.0, 0.5])
    bars: Any = upper.collections[0]
    low, high = zip(*[segment[:, 1] for segment in bars.get_segments()], strict=True)
    assert low == pytest.approx([0.0, 0.4690], abs=1e-3)
    assert high == pytest.approx([0.2775, 0.5310], abs=1e-3)
