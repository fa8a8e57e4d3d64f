"""Projections of completions, system metrics, and checks of the settings of callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from callbacks.completions import Completions, TrainingCompletions
from callbacks.cost import Throughput
from callbacks.credit import StepCredit
from callbacks.critic_validation import Calibration, SimilarityHeatmap
from callbacks.health import Alarms, Health
from callbacks.projections import CompletionProjection, EmbeddingProjection, projections
from callbacks.system_metrics import SystemMetrics, accelerator
from callbacks.watchdog import Watchdog
from experiments.run_folder.logger import RunFolderLogger
from tests.unit.callbacks.kit import Album, assert_only_watches
from tests.unit.lightning_modules.grpo_kit import TASK, fit, module
from tests.unit.lightning_modules.rewards_kit import clipo


def projection(**changes: Any) -> CompletionProjection:
    settings: dict[str, Any] = {"task": TASK, "points": 12, "every": 2, "perplexity": 3.0, "seed": 0}
    return CompletionProjection(**settings | changes)


def test_completion_projection_draws_steps_1_2_4_and_leaves_weights_unchanged() -> None:
    album = Album()
    assert_only_watches(projection(), 4, logger=album, reward=clipo)
    assert [step for step, _ in album.figures["clipo/completions"]] == [1, 2, 4]


def test_completion_projection_skips_reward_without_embeddings() -> None:
    album = Album()
    fit(module(), 2, projection(), logger=album)
    assert not album.figures


def test_legend_of_a_projection_counts_each_class() -> None:
    correct = torch.tensor([True, False, False, True, False, False])
    figure = projections(torch.randn(6, 4), {"the completion is": correct}, title="", perplexity=3.0, seed=0)
    for panel in figure.axes:
        legend = panel.get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == ["incorrect (4)", "correct (2)"]


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, [1, 2, 3]), (3600.0, [1])])
def test_system_metrics_are_logged_at_given_interval(
    tmp_path: Path, seconds: float, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_now = psutil.virtual_memory()._replace(used=3_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory_now)
    logger = RunFolderLogger(folder=tmp_path)
    fit(module(), 3, SystemMetrics(seconds=seconds), logger=logger)
    history = {name: values for name, values in logger.history().items() if name.startswith("system/")}
    memory = ("system_memory_usage_megabytes", "system_memory_usage_percentage")
    disk = ("disk_usage_percentage", "disk_available_megabytes")
    assert set(history) == {f"system/{name}" for name in ("cpu_utilization_percentage", *memory, *disk)}
    assert {tuple(values) for values in history.values()} == {tuple(steps)}
    shares = [value for name in history if name.endswith("percentage") for value in history[name].values()]
    assert all(0 <= share <= 100 for share in shares)
    assert history["system/system_memory_usage_megabytes"][1] == pytest.approx(3000)
    assert accelerator(torch.device("cpu")) == {}


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: projection(points=3), "points.*3"),
        (lambda: projection(every=0), "every.*0"),
        (lambda: EmbeddingProjection(points=3, perplexity=5.0, seed=0), "points.*3"),
        (lambda: SystemMetrics(seconds=-1.0), "callbacks.system_metrics.seconds.*-1"),
        (lambda: StepCredit(task=TASK, every=0, steps=1), "callbacks.step_credit.every.*0"),
        (lambda: TrainingCompletions(task=TASK, rows=0, every=1, longest=1), "training_completions.rows"),
        (lambda: Completions(task=TASK, problems=0), "problems.*0"),
        (lambda: SimilarityHeatmap(size=1), "size.*1"),
        (lambda: Calibration(bins=1), "callbacks.calibration.bins.*1"),
        (lambda: Alarms(window=1, threshold=3.0), "window.*1"),
        (lambda: Alarms(window=2, threshold=0.0), "threshold.*0"),
        (lambda: Health(limits={"train/a": [1.0]}), r"limits.*train/a.*\[1.0\]"),
        (lambda: Throughput(window=1, tokens=None, peak_flops=0.0), "peak_flops"),
        (lambda: Throughput(window=0, tokens=None, peak_flops=None), "window.*0"),
        (lambda: Watchdog(limits={"rolout": 1.0}), "limits.*rollout"),
        (lambda: Watchdog(limits={"reward": 0.0}), "limits.reward"),
        (lambda: Watchdog(limits={"reward": float("nan")}), "limits.reward"),
    ],
)
def test_invalid_callback_settings_raise(make: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make()
