"""Memory stays flat: a long run at laptop scale through the real entry, everything switched on that a run has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.metrics_file import read_metrics

STEPS, WARM_UP = 400, 200
"""Allocators and caches fill in the first two hundred steps, to several times what is in use at any moment."""
MOST = 1.0
"""Megabytes a step."""
GRPO = ["logger=folder", f"budget.grpo.steps={STEPS}"]
SELDOM = ["budget.grpo.evaluate_every=50", "budget.grpo.checkpoint_every=50", "budget.clipo.draw_every=50"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "changed"),
    [
        ("llama_baseline", ["stages=[grpo]"]),
        ("clipo_laptop", ["stages=[grpo]"]),
        ("llama_critic_calibrated", ["stages=[critic,grpo]", "budget.critic.steps=150", "online=refresh"]),
    ],
)
def test_a_step_leaves_nothing_behind(experiment: str, changed: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.run", f"experiment={experiment}", *changed, *GRPO, *SELDOM]
    done = subprocess.run(
        [*command, f"output_dir={tmp_path}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    megabytes = in_use(tmp_path)
    assert len(megabytes) >= STEPS
    assert slope(megabytes[WARM_UP:]) < MOST


def in_use(outputs: Path) -> list[float]:
    """What was resident after each step."""
    (folder,) = outputs.glob("stages/grpo/*")
    return [metric.value for metric in read_metrics(folder) if metric.name == "train/throughput/memory_megabytes"]


def slope(values: list[float]) -> float:
    """Of the straight line through the values, per step."""
    return float(np.polyfit(np.arange(len(values)), values, 1)[0])
