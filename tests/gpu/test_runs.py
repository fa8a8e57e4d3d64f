"""Whole experiments on a GPU from the command line: critic, figures, policy, and evaluation of both policies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("experiment", ["llama_critic", "critic_preference", "clipo_laptop"])
@pytest.mark.parametrize("trainer", ["gpu", "zero2", "zero3"])
def test_every_stage_finishes_on_a_gpu(experiment: str, trainer: str, tmp_path: Path) -> None:
    overrides = [f"output_dir={tmp_path}", "logger.mirror=false", f"trainer={trainer}", "trainer.devices=1"]
    command = [sys.executable, "-m", "experiments.run", f"experiment={experiment}", "debug=fast", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (record,) = tmp_path.glob("runs/*/*/stages.json")
    folders = [Path(stage["folder"]) for stage in json.loads(record.read_text()).values()]
    assert folders
    assert all((folder / "result.json").is_file() for folder in folders)
