"""A user's reward in a whole run: a step leaves out a few failures, too many end the run with a message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.run_folder.reader import read_metrics

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["experiment=grpo_laptop", "debug=fast", "stages=[warm_start,grpo]", "logger.mirror=false"]
MODULE = """
import os, time

from contrastive_reasoning.rewards import VerifierReward
from contrastive_reasoning.workers.failures import VerifierFailed

calls = 0

def every_third_call_ends_its_process(problem, completion):
    global calls
    calls += 1
    if calls == 3:
        os._exit(1)
    return float(len(completion))

def raises_its_token(problem, completion):
    raise ConnectionError(f"401 for https://judge.example?token={os.environ['JUDGE_TOKEN']}")

class Judge:
    part = "judge"

    def __init__(self, **parts):
        pass

    def __call__(self, rollouts):
        raises_its_token("", "")

class OneJudgeIsBroken(VerifierReward):
    def __call__(self, rollouts):
        if os.environ["RANK"] == "1":
            raise VerifierFailed("the verifier failed on 5 of the last 20 answers")
        return super().__call__(rollouts)
"""
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
TOKEN = "sentinel-0123456789"
pytestmark = pytest.mark.slow


def run(folder: Path, function: str, *overrides: str) -> subprocess.CompletedProcess[str]:
    return start(folder, "reward=function", f"reward.function._target_=my_rewards.{function}", *overrides)


def start(folder: Path, *overrides: str, by: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """``by`` starts the ranks, as on a cluster."""
    (folder / "my_rewards.py").write_text(MODULE)
    return subprocess.run(
        [sys.executable, "-m", *by, "experiments.run", *SMALL, *overrides],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JUDGE_TOKEN": TOKEN},
        capture_output=True,
        text=True,
    )


def test_reward_calls_that_end_their_process_are_skipped(tmp_path: Path) -> None:
    done = run(tmp_path, "every_third_call_ends_its_process", "reward.workers=1", "reward.max_failures=0.5")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "stages" / "grpo").iterdir()
    failed = {m.step: m.value for m in read_metrics(folder) if m.name == "train/reward/failed"}
    assert failed == {1: 2 / 8, 2: 3 / 8}, "calls 3, 6; then 9, 12, 15 of one worker after another"
    assert "worker ended with exit code 1" in done.stderr


@pytest.mark.parametrize("limit", [0.2, 1.0], ids=["ends the run with one sentence", "is left out"])
def test_token_in_exception_of_reward_function_is_masked(tmp_path: Path, limit: float) -> None:
    done = run(tmp_path, "raises_its_token", f"reward.max_failures={limit}")
    assert done.returncode == (1 if limit < 1 else 0), done.stderr
    cause = "ConnectionError: 401 for https://judge.example?token=***"
    assert cause in done.stderr
    allowed = f"more than reward.max_failures={limit:g} allows"
    sentence = f"the reward failed on 8 of 8 rollouts (100%), {allowed}; the first: error, {cause}"
    assert (sentence in done.stderr) == (limit < 1)
    assert limit == 1 or "Traceback" not in done.stderr
    assert_token_not_written(tmp_path, done)


def test_token_in_traceback_of_reward_class_is_masked(tmp_path: Path) -> None:
    done = start(tmp_path, "reward=verifier", "reward._target_=my_rewards.Judge")
    assert done.returncode == 1
    assert "401 for https://judge.example?token=***" in done.stderr
    assert_token_not_written(tmp_path, done)


@pytest.mark.parametrize(("by", "message"), [(TORCHRUN, "rank 1: the verifier"), ((), "rank 1 failed first")])
def test_failure_of_one_rank_is_reported_with_each_launcher(tmp_path: Path, by: Sequence[str], message: str) -> None:
    refuses = ["reward=verifier", "reward._target_=my_rewards.OneJudgeIsBroken", "trainer=ddp", "trainer.devices=2"]
    done = start(tmp_path, *refuses, by=by)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("the verifier failed on 5 of the last 20 answers") == 1


def assert_token_not_written(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    """The token is neither in the output nor in any file."""
    assert TOKEN not in done.stdout + done.stderr
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"my_rewards.py", "begun.json", "metrics.jsonl"} <= {path.name for path in files}
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
