"""A killed run on the real model, resumed by the same command, equals an uninterrupted run bit for bit.

It uses the first layers, because each run writes a checkpoint after every step.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.stages.checkpoints import newest_sound, path_of
from tests.forking import Forks
from tests.integration.test_kills import KILLED, assert_same, numbers, stage
from tests.real.test_steps import SIZES, opposites

pytestmark = pytest.mark.real
DEATHS = [("backward", 2, 1), ("checkpoint in place", 3, 2)]
"""Place and step of each kill, and the step from which the next run resumes."""


def test_resumed_run_equals_uninterrupted_run(run: Forks, few_layers: Path, tmp_path: Path) -> None:
    """CLIPO, so that a second optimizer has a state. The answer is a letter that the layers generate by chance."""
    words = [*SIZES, *opposites(tmp_path), f"policy.pretrained={few_layers}", "reward=clipo"]
    (tmp_path / "opposites.jsonl").write_text("".join(f'{{"prompt": "{n} + 1?", "answer": "a"}}\n' for n in range(9)))
    words += [
        "budget.clipo.warmup_steps=0",
        "budget.grpo.steps=3",
        "budget.grpo.checkpoint_every=1",
        "budget.grpo.evaluate_every=3",
    ]
    words += ["budget.grpo.max_completion_tokens=5", "budget.grpo.microbatch_tokens=40"]  # two rows in a micro-batch
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(*words, f"output_dir={whole}") == 0, run.log.read_text()
    expected = numbers(stage(whole, "grpo"))
    assert all(expected["train/optimizer/gradient_norm", step] > 0 for step in (1, 2, 3))
    for place, step, kept in DEATHS:
        assert run(*words, f"output_dir={killed}", place=place, step=step) == KILLED, place
        checkpoints = stage(killed, "grpo") / "checkpoints"
        assert newest_sound(checkpoints)[0] == path_of(checkpoints, kept), place
    assert run(*words, f"output_dir={killed}") == 0, run.log.read_text()
    assert_same(stage(killed, "grpo"), stage(whole, "grpo"))
