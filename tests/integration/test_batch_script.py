"""docs/train.sbatch as SLURM runs it. Fake ``srun`` and ``scontrol`` programs record their calls.

One test edits the script for two ranks on this machine, as a user does for a cluster. There ``srun`` starts torchrun.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.stages.checkpoints import newest_sound
from tests.integration.test_killed_ranks import TWO_RANKS, wait_for_step
from tests.integration.test_kills import assert_same, stage
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "train.sbatch"
SCONTROL = """#!/bin/bash
echo "$@" >> asked
[ "$1" = show ] && echo 127.0.0.1
exit 0
"""
SRUN = """#!/bin/bash
echo "$1" > how
trap 'echo SIGTERM >> asked; exit {stopped}' TERM
touch started
for _ in {{1..{tenths}}}; do sleep 0.1; done
exit {ended}
"""
SRUN_ON_ONE_NODE = """#!/bin/bash
shift
exec "$@"
"""
SHOW, REQUEUE = "show hostnames node-[1-2]", "requeue 7"


def submit(folder: Path, script: Path, srun: str, *, nodes: int) -> subprocess.Popen[bytes]:
    """Start the script in this folder as SLURM does."""
    for name, text in {"scontrol": SCONTROL, "srun": srun}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    job = {"SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_NNODES": str(nodes), "SLURM_JOB_ID": "7"}
    own = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(["bash", script], cwd=folder, env=os.environ | job | own)


def start_script(folder: Path, **srun: int) -> subprocess.Popen[bytes]:
    """Start the script in this folder and wait until ``srun`` has started."""
    script = submit(folder, SCRIPT, SRUN.format(**{"stopped": 143, **srun}), nodes=2)
    deadline = time.monotonic() + 60
    while not (folder / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return script


def recorded_calls(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


@pytest.mark.parametrize(("stopped", "expected"), [(143, [SHOW, "SIGTERM", REQUEUE]), (0, [SHOW, "SIGTERM"])])
def test_run_out_of_time_gets_sigterm_and_is_requeued_unless_it_exits_with_0(
    tmp_path: Path, stopped: int, expected: list[str]
) -> None:
    script = start_script(tmp_path, tenths=600, ended=0, stopped=stopped)
    script.send_signal(signal.SIGUSR1)
    assert script.wait(60) == stopped
    assert recorded_calls(tmp_path) == expected


@pytest.mark.parametrize("ended", [0, 1, 143])
def test_run_that_ends_fails_or_is_cancelled_is_not_requeued(tmp_path: Path, ended: int) -> None:
    assert start_script(tmp_path, tenths=1, ended=ended).wait(60) == ended
    assert recorded_calls(tmp_path) == [SHOW]
    assert (tmp_path / "how").read_text() == "--kill-on-bad-exit=1\n", "a node that fails leaves none waiting"


def edited_script(folder: Path) -> Path:
    """The script in a folder with an environment, edited for two ranks of a small run on this machine."""
    text = SCRIPT.read_text()
    edits = {
        "experiment=grpo_gsm8k": shlex.join(TWO_RANKS),
        "scale=paper": "scale=laptop",
        "trainer=zero3": "trainer=ddp",
        "trainer.devices=8": "trainer.devices=2",
        "--nproc-per-node=8": "--nproc-per-node=2",
        ":29500": f":{free_port()}",
    }
    for written, ours in edits.items():
        assert text.count(written) == 1, written
        text = text.replace(written, ours)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (folder / "edited.sbatch").write_text(text)
    return folder / "edited.sbatch"


@pytest.mark.slow
def test_requeued_run_resumes_and_equals_uninterrupted_run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    """Real ranks of a real torchrun. The script runs again as it does after ``scontrol requeue``."""
    undisturbed = tmp_path_factory.mktemp("undisturbed")
    assert submit(undisturbed, edited_script(undisturbed), SRUN_ON_ONE_NODE, nodes=1).wait(600) == 0
    script = edited_script(tmp_path)
    first = submit(tmp_path, script, SRUN_ON_ONE_NODE, nodes=1)
    wait_for_step(tmp_path / "outputs", 2, first)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(600) != 0
    assert recorded_calls(tmp_path) == [SHOW, REQUEUE]
    grpo = stage(tmp_path / "outputs", "grpo")
    assert newest_sound(grpo / "checkpoints")[0] is not None
    assert submit(tmp_path, script, SRUN_ON_ONE_NODE, nodes=1).wait(600) == 0
    assert recorded_calls(tmp_path) == [SHOW, REQUEUE, SHOW]
    assert f"grpo: resuming in {grpo.relative_to(tmp_path)}" in capfd.readouterr().out
    assert_same(grpo, stage(undisturbed / "outputs", "grpo"))
