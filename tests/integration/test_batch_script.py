"""docs/train.sbatch as SLURM runs it. Fake ``srun`` and ``scontrol`` programs record their calls."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "train.sbatch"
SCONTROL = """#!/bin/bash
echo "$@" >> asked
[ "$1" = show ] && echo node-1
exit 0
"""
SRUN = """#!/bin/bash
echo "$1" > how
trap 'echo SIGTERM >> asked; exit {stopped}' TERM
touch started
for _ in {{1..{tenths}}}; do sleep 0.1; done
exit {ended}
"""
SHOW, REQUEUE = "show hostnames node-[1-2]", "requeue 7"


def start_script(folder: Path, **srun: int) -> subprocess.Popen[bytes]:
    """Start the script in this folder and wait until ``srun`` has started."""
    for name, text in {"scontrol": SCONTROL, "srun": SRUN.format(**{"stopped": 143, **srun})}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    job = {"SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7"}
    variables = os.environ | job | {"PATH": f"{folder}:{os.environ['PATH']}"}
    script = subprocess.Popen(["bash", SCRIPT], cwd=folder, env=variables)
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
