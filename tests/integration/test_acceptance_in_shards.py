"""The main job and CLIPO in ZeRO shards on two ranks, one of which is killed once, give the curves of one process.

A step has several micro-batches, mini-batches and updates. Each rank has its own problems.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.stages.experiment import run_experiment
from tests.config_kit import composed
from tests.integration.test_killed_ranks import PATIENCE, struck
from tests.integration.test_kills import stage
from tests.integration.test_ranks_run import assert_same_numbers, numbers

COMMON = [
    "debug=fast",
    "logger.mirror=false",
    "policy.compute_dtype=float32",
    "budget.grpo.problems=4",
    "budget.grpo.steps=3",
    "budget.grpo.minibatches=2",
    "budget.grpo.updates=2",
    "budget.grpo.microbatch_tokens=128",
]
JOBS = {
    "main": ["experiment=llama_critic", "stages=[critic,grpo,evaluate]", "module.shard_reference=true"],
    "clipo": [
        "experiment=clipo_laptop",
        "stages=[grpo,evaluate]",
        "policy.pretrained=embedded:llama_arithmetic",  # it solves a few problems, so CLIPO has positives
        "budget.clipo.warmup_steps=1",
        "budget.grpo.group_size=8",
        "budget.grpo.max_completion_tokens=64",
    ],
}
TAUGHT = {"main": "train/objective/kl", "clipo": "train/clipo/loss"}
"""A metric of each job that must be non-zero, or the comparison would show nothing."""
SHARDS = {"zero2": ["trainer=zero2"], "zero3": ["trainer=zero3", "trainer.strategy.whole_elements=0"]}
LAST = {"main": 5, "clipo": 4}
"""The last batch: three batches train the policy, after those that train only the reward."""


def start(outputs: Path, *overrides: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "experiments.run", *COMMON, *overrides, f"output_dir={outputs}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A job, and its outputs by one process, which is this one."""
    outputs = tmp_path_factory.mktemp(request.param)
    run_experiment(deepcopy(composed(*COMMON, *JOBS[request.param], f"output_dir={outputs}")))
    return request.param, outputs


@pytest.mark.parametrize(
    ("alone", "trainer"),
    [
        *(pytest.param(*each, marks=pytest.mark.whole) for each in (("main", "zero3"), ("clipo", "zero2"))),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("main", "zero2"), ("clipo", "zero3"))),
    ],
    indirect=["alone"],
)
def test_two_sharded_ranks_with_one_killed_match_one_process(
    trainer: str, alone: tuple[str, Path], tmp_path: Path
) -> None:
    job, whole = alone
    run = [*JOBS[job], *SHARDS[trainer]]
    errors = struck(tmp_path, start(tmp_path, *run), LAST[job] - 2, lambda ranks: os.kill(ranks["1"], signal.SIGKILL))
    assert "rank 1 failed first" in errors
    again = start(tmp_path, *run)
    _, errors = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, errors
    for name in (path.name for path in (whole / "stages").iterdir()):
        expected, found = numbers(stage(whole, name)), numbers(stage(tmp_path, name))
        assert expected.keys() <= found.keys()
        assert_same_numbers(found, expected)
    folder, expected = stage(tmp_path, "grpo"), numbers(stage(whole, "grpo"))
    assert max(step for _, step in expected) == LAST[job]
    assert any(value for (name, _), value in expected.items() if name == TAUGHT[job])
    one, two = (load_file(path / "policy" / "model.safetensors") for path in (stage(whole, "grpo"), folder))
    assert_close(two, one, rtol=0, atol=1e-5)
    model = AutoModelForCausalLM.from_pretrained(folder / "policy")
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    assert torch.equal(model.model.norm.weight, two["model.norm.weight"])
    assert model(**tokenizer("1+1=", return_tensors="pt")).logits.isfinite().all()
