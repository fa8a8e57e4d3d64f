"""The picture of what a stage logged: made from the folder when training ends, of those panels that have lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from callbacks.stage_curves import StageCurves, draw, thinned
from experiments.run_folder.logger import RunFolderLogger
from tests.unit.lightning_modules.grpo_kit import fit, module

PANELS = {
    "mean_reward": {"outcome": "train/reward/outcome", "oracle": "train/reward/oracle"},
    "of_others": {"loss": "train/critic/loss"},
}


def points(line: Any) -> list[tuple[float, float]]:
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


class Keeping(RunFolderLogger):
    """A run folder that keeps its figures at hand too."""

    figures: list[tuple[str, int, Figure]]

    def log_figure(self, name: str, figure: Figure, step: int) -> None:
        self.figures = [*getattr(self, "figures", []), (name, step, figure)]
        super().log_figure(name, figure, step)


def test_a_run_ends_with_one_picture_of_all_its_steps_those_before_a_resumption_too(tmp_path: Path) -> None:
    logger = Keeping(folder=tmp_path)
    logger.log_metrics({"train/reward/outcome": 0.25}, step=0)
    fit(module(), 3, StageCurves(steps="rollout batches", panels=PANELS), logger=logger)
    ((name, step, figure),) = logger.figures
    assert (name, step) == ("curves", 3)
    assert (tmp_path / "figures" / "curves" / "3.png").exists()
    (panel,) = [axes for axes in figure.axes if axes.get_visible()]
    (line,) = panel.lines
    history = logger.history()["train/reward/outcome"]
    assert list(history) == [0, 1, 2, 3]
    assert history[0] == 0.25
    assert points(line) == list(history.items())
    assert (panel.get_title(), line.get_label(), panel.get_xlabel()) == ("mean reward", "outcome", "rollout batches")


def test_where_nothing_of_it_was_logged_nothing_is_drawn() -> None:
    assert draw({"a": {1: 1.0}}, PANELS, steps="steps") is None


def test_an_odd_number_of_panels_leaves_a_place_free() -> None:
    figure = draw({"a": {1: 1.0}}, {title: {"l": "a"} for title in ("p", "q", "r")}, steps="steps")
    assert figure is not None
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]


def test_what_is_no_finite_number_is_left_out() -> None:
    figure = draw({"a": {2: 2.0, 0: math.nan, 1: 1.0, 3: math.inf}}, {"p": {"l": "a"}}, steps="steps")
    assert figure is not None
    assert points(figure.axes[0].lines[0]) == [(1, 1.0), (2, 2.0)]


def test_many_points_are_means_over_a_faint_line_of_all() -> None:
    history = {step: float(step % 2) for step in range(240)}
    figure = draw({"a": history}, {"p": {"l": "a"}}, steps="steps")
    assert figure is not None
    all_of_them, means = figure.axes[0].lines
    assert points(all_of_them) == list(history.items())
    assert {value for _, value in points(means)} == {0.5}
    assert len(points(means)) == 60
    assert thinned({1: 3.0}) == {1: 3.0}


@pytest.mark.parametrize(
    ("panels", "sentence"),
    [({}, "at least one panel"), ({"p": {}}, "1 to 5 lines, got 0"), ({"p": {str(k): "a" for k in range(6)}}, "got 6")],
)
def test_settings_are_checked(panels: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        StageCurves(steps="steps", panels=panels)
