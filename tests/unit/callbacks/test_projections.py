from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from callbacks.projections import CompletionProjection
from tests.unit.lightning_modules.grpo_kit import TASK, fit, module, weights
from tests.unit.lightning_modules.test_grpo_clipo import clipo


class Pictures(DummyLogger):
    """Keeps the figures."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: list[tuple[str, int, Figure]] = []

    def log_figure(self, name: str, figure: Figure, step: int) -> None:
        self.figures.append((name, step, figure))


def projection(**changes: Any) -> CompletionProjection:
    settings: dict[str, Any] = {"task": TASK, "points": 12, "every": 2, "perplexity": 3.0, "seed": 0}
    return CompletionProjection(**settings | changes)


def test_the_first_batch_and_every_other_are_drawn_and_training_does_not_notice() -> None:
    pictures = Pictures()
    watched, alone = module(reward=clipo()), module(reward=clipo())
    fit(watched, 4, projection(), logger=pictures)
    fit(alone, 4)
    assert [(name, step) for name, step, _ in pictures.figures] == [("clipo/completions", k) for k in (1, 2, 4)]
    assert torch.equal(weights(watched), weights(alone))


def test_a_reward_without_embeddings_is_left_out() -> None:
    pictures = Pictures()
    fit(module(), 2, projection(), logger=pictures)
    assert not pictures.figures


def test_correct_and_incorrect_completions_are_two_classes() -> None:
    correct = torch.tensor([True, False, False, True, False, False])
    figure = projection().figure(torch.randn(6, 4), correct, 1)
    labels = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in figure.axes if axes.get_legend()]
    assert labels == [["incorrect (4)", "correct (2)"]] * 2


def test_no_legend_lies_on_points() -> None:
    figure = projection().figure(torch.randn(6, 4), torch.tensor([True, False] * 3), 1)
    FigureCanvasAgg(figure).draw()
    for panel in figure.axes:
        legend = panel.get_legend()
        assert legend is not None
        assert not legend.get_window_extent().overlaps(panel.get_window_extent())
        assert figure.bbox.fully_contains(*legend.get_window_extent().min)


@pytest.mark.parametrize(
    ("change", "sentence"), [({"points": 3}, "points must be at least 4"), ({"every": 0}, "every")]
)
def test_settings_are_checked(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        projection(**change)
