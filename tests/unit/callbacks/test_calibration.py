"""The reliability diagram: of the very predictions whose calibration error is logged."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from callbacks.critic_validation import Calibration, diagram, wilson
from contrastive_reasoning.critics.calibration import ReliabilityBins
from lightning_modules.metrics import OracleMetrics
from tests.unit.callbacks.test_critic_pictures import Album, fit


def test_each_validation_is_drawn_with_the_error_that_is_logged(tmp_path: Path) -> None:
    _, album = fit([Calibration(bins=15)], tmp_path)
    assert len(album.figures["critic/calibration"]) == 2
    said = album.figures["critic/calibration"][-1].get_suptitle()
    error = re.search(r"ECE ([0-9.]+)$", said)
    assert error is not None
    assert float(error[1]) == pytest.approx(album.metrics["val/oracle/ece"], abs=6e-4)


def test_its_bins_are_of_equal_width_and_as_many_as_are_asked_for() -> None:
    """0.1, 0.2 and 0.9, of which the first alone is true: by tens (0.9 + 0.2 + 0.9) / 3, by halves (0.7 + 0.9) / 3."""
    assert error_by(10) == pytest.approx(2.0 / 3, abs=6e-4)
    assert error_by(2) == pytest.approx(1.6 / 3, abs=6e-4)


def error_by(bins: int) -> float:
    metrics, album = OracleMetrics(), Album()
    metrics.ece.update(torch.tensor([0.1, 0.2, 0.9]) + 1e-3, torch.tensor([1, 0, 0]))
    trainer: Any = SimpleNamespace(is_global_zero=True, sanity_checking=False, global_step=3, loggers=[album])
    Calibration(bins=bins).on_validation_epoch_end(trainer, SimpleNamespace(oracle_metrics=metrics))
    (figure,) = album.figures["critic/calibration"]
    return float(figure.get_suptitle().rpartition(" ")[2])


@pytest.mark.parametrize("module", [object(), SimpleNamespace(oracle_metrics=OracleMetrics())])
def test_without_an_oracle_or_its_states_nothing_is_drawn(module: Any) -> None:
    album = Album()
    trainer: Any = SimpleNamespace(is_global_zero=True, sanity_checking=False, global_step=3, loggers=[album])
    Calibration(bins=15).on_validation_epoch_end(trainer, module)
    assert not album.figures


def found() -> ReliabilityBins:
    return ReliabilityBins(
        predicted=torch.tensor([0.1, 0.8]), true=torch.tensor([0.0, 0.5]), count=torch.tensor([10, 1000])
    )


def test_the_counts_are_below_the_shares() -> None:
    upper, lower = diagram(found(), step=3).axes
    segments: Any = lower.collections[0]
    assert [segment[1][1] for segment in segments.get_segments()] == [10, 1000]
    assert upper.lines[1].get_ydata() == pytest.approx([0.0, 0.5])


def test_intervals_are_wilsons() -> None:
    """0 of 10: 0 … 0.2775; 500 of 1000: 0.4690 … 0.5310 (E. B. Wilson 1927)."""
    low, high = wilson(found())
    assert low.tolist() == pytest.approx([0.0, 0.4690], abs=1e-3)
    assert high.tolist() == pytest.approx([0.2775, 0.5310], abs=1e-3)


def test_there_are_two_bins_at_least() -> None:
    with pytest.raises(ValueError, match=r"callbacks.calibration.bins must be at least 2, got 1"):
        Calibration(bins=1)
