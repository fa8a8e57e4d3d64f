"""Memory stays flat: a long run of laptop models through the real entry, everything switched on that a run has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.run_folder import read_metrics

STEPS, WARM_UP = 300, 100
"""Allocators and caches fill in the first hundred steps, to several times what is in use at any moment."""
MOST = 1.0
"""Megabytes a step."""
GRPO = ["logger.mirror=false", f"budget.grpo.steps={STEPS}"]
SELDOM = ["budget.grpo.evaluate_every=100", "budget.grpo.checkpoint_every=50", "budget.clipo.draw_every=100"]

FEWER = "budget.grpo.problems=8"
"""Fewer than the 64 or 128 of the laptop's budgets, so that 300 steps are minutes. What is left behind for each problem
has to be that much larger to be seen; what a step leaves behind is: with 12 and 24 problems memory grew no faster."""
ONLINE = ["stages=[critic,grpo]", "online=refresh", "online.lessons.steps=4", "budget.critic.steps=150", FEWER]
FEW_SHAPES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16"}
"""A batch has as many tokens, and a critic scores as many states, as completions happen to have: for each number a
kernel is compiled, and 1,024 are kept: filling them takes hundreds of steps and would hide what is never given back."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "changed"),
    [
        ("llama_baseline", ["stages=[grpo]", FEWER]),
        ("clipo_laptop", ["stages=[grpo]", FEWER]),
        ("llama_critic_calibrated", ONLINE),
    ],
)
def test_a_step_leaves_nothing_behind(
    experiment: str,
    changed: list[str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    command = [sys.executable, "-m", "experiments.run", f"experiment={experiment}", *changed, *GRPO, *SELDOM]
    done = subprocess.run(
        [*command, f"output_dir={tmp_path}"],
        env={**os.environ, "OMP_NUM_THREADS": "1", **FEW_SHAPES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    megabytes = in_use(tmp_path)
    assert len(megabytes) >= STEPS
    record_property("megabytes_a_step", round(slope(megabytes[WARM_UP:]), 3))
    assert slope(megabytes[WARM_UP:]) < MOST


def in_use(outputs: Path) -> list[float]:
    """What was resident after each step."""
    (folder,) = outputs.glob("stages/grpo/*")
    return [metric.value for metric in read_metrics(folder) if metric.name == "train/throughput/memory_megabytes"]


def slope(values: list[float]) -> float:
    """Of the straight line through the values, per step."""
    return float(np.polyfit(np.arange(len(values)), values, 1)[0])
