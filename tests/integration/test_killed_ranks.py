"""One of two ranks is killed or has no disk space for its shard, or both get SIGTERM.

All ranks end, and the same command then gives the result of two uninterrupted ranks.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.run_folder.reader import METRICS_FILE
from experiments.stages.checkpoints import newest_sound
from experiments.system.launch import INTERRUPTED
from tests.integration.test_kills import assert_same, stage

TWO_RANKS = [
    "experiment=llama_baseline",
    "debug=fast",
    "logger.mirror=false",
    "stages=[grpo]",
    "trainer=ddp",
    "trainer.accelerator=cpu",
    "budget.grpo.steps=6",
]
SHARDS = "trainer=zero2"
PATIENCE = 240
pytestmark = pytest.mark.slow
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


def start(outputs: Path, *overrides: str, by: Sequence[str] = ()) -> subprocess.Popen[str]:
    """``by`` starts the ranks, as on a cluster; otherwise the first rank starts the other."""
    command = [sys.executable, "-m", *by, "experiments.run", *TWO_RANKS, *overrides, f"output_dir={outputs}"]
    return subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def ranks_of(launcher: int) -> dict[str, int]:
    """RANK → process id."""
    found: dict[str, int] = {}
    for process in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        variables = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
        found |= {name.partition("=")[2]: int(process) for name in variables if name.startswith("RANK=")}
    return found


def wait_for_step(outputs: Path, step: int, run: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not any(f'"step": {step},' in path.read_text() for path in outputs.glob(f"stages/grpo/*/{METRICS_FILE}")):
        assert run.poll() is None, "ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of two uninterrupted ranks."""
    outputs = tmp_path_factory.mktemp("whole")
    assert start(outputs).wait(PATIENCE) == 0
    return outputs


@pytest.fixture(scope="module")
def whole_in_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outputs = tmp_path_factory.mktemp("whole")
    assert start(outputs, SHARDS).wait(PATIENCE) == 0
    return outputs


def struck(outputs: Path, run: subprocess.Popen[str], step: int, strike: Callable[[dict[str, int]], object]) -> str:
    """Errors of two ranks, after a call of ``strike`` in a step. All ranks must end within half a minute."""
    wait_for_step(outputs, step, run)
    ranks = ranks_of(run.pid)
    assert set(ranks) == {"0", "1"}
    strike(ranks)
    began = time.monotonic()
    _, errors = run.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 30
    assert run.returncode not in (0, None)
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks.values()), "all have ended"
    return errors


@pytest.mark.parametrize(("shards", "victim"), [([], "0"), ([SHARDS], "1")])
def test_run_resumes_after_one_of_two_ranks_was_killed(
    shards: list[str], victim: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    unharmed: Path = request.getfixturevalue("whole_in_shards" if shards else "whole")
    run = start(tmp_path, *shards)
    errors = struck(tmp_path, run, 3, lambda ranks: os.kill(ranks[victim], signal.SIGKILL))
    assert run.returncode == 137
    assert f"rank {victim} failed first" in errors
    assert list(stage(tmp_path, "grpo").glob("checkpoints/*.seal"))
    assert start(tmp_path, *shards).wait(PATIENCE) == 0
    assert_same(stage(tmp_path, "grpo"), stage(unharmed, "grpo"))


def test_run_resumes_after_torchrun_lost_a_rank(whole: Path, tmp_path: Path) -> None:
    struck(tmp_path, start(tmp_path, by=TORCHRUN), 3, lambda ranks: os.kill(ranks["1"], signal.SIGKILL))
    assert start(tmp_path, by=TORCHRUN).wait(PATIENCE) == 0
    assert_same(stage(tmp_path, "grpo"), stage(whole, "grpo"))


def test_sigterm_to_launcher_saves_same_step_on_both_ranks_and_run_resumes(whole: Path, tmp_path: Path) -> None:
    run = start(tmp_path)
    errors = struck(tmp_path, run, 2, lambda _: run.send_signal(signal.SIGTERM))
    assert run.returncode == INTERRUPTED, errors
    left, passed_over = newest_sound(stage(tmp_path, "grpo") / "checkpoints")
    assert passed_over == []
    assert f"(checkpoint {left}); run the same command again to resume" in errors
    assert start(tmp_path).wait(PATIENCE) == 0
    assert_same(stage(tmp_path, "grpo"), stage(whole, "grpo"))


def test_full_disk_of_one_rank_ends_all_ranks_and_run_resumes(whole_in_shards: Path, tmp_path: Path) -> None:
    """A limit on the file size makes a rank write as on a full disk: first rank 1, then rank 0."""
    for victim, step in (("1", 2), ("0", 4)):

        def fill_the_disk(ranks: dict[str, int], victim: str = victim) -> None:
            _, hard = resource.prlimit(ranks[victim], resource.RLIMIT_FSIZE)
            resource.prlimit(ranks[victim], resource.RLIMIT_FSIZE, (100_000, hard))

        errors = struck(tmp_path, start(tmp_path, SHARDS), step, fill_the_disk)
        left, passed_over = newest_sound(stage(tmp_path, "grpo") / "checkpoints")
        assert passed_over == []
        intact = re.escape(f"the one before, {left}, is intact")
        assert re.search(rf"checkpoint .*\.ckpt cannot be written \(.*\); {intact}", errors), errors
    assert start(tmp_path, SHARDS).wait(PATIENCE) == 0
    assert_same(stage(tmp_path, "grpo"), stage(whole_in_shards, "grpo"))
