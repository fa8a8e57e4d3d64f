from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.sweep.supervise import LONGEST_CAUSE, _code_of, _outcome, last_line


def sleeper(*, deaf: bool = False) -> subprocess.Popen[bytes]:
    """By default it dies of the signal, as a job does while it still imports its libraries."""
    hear = "signal.SIG_IGN" if deaf else "signal.default_int_handler"
    code = f"import signal, time; signal.signal(signal.SIGINT, {hear}); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it listens now
    return process


def test_a_job_hears_that_the_sweep_is_to_stop(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    code = _code_of(sleeper(), tmp_path / "stop")
    assert code == -signal.SIGINT
    assert _outcome(code, tmp_path / "log.txt", asked=True) == {"state": "stopped"}


def test_a_job_that_stopped_by_itself_has_not_failed(tmp_path: Path) -> None:
    assert _outcome(130, tmp_path / "log.txt", asked=False) == {"state": "stopped"}


def test_a_job_that_ended_well_before_it_heard_is_done(tmp_path: Path) -> None:
    assert _outcome(0, tmp_path / "log.txt", asked=True) == {"state": "done"}


def test_a_job_that_does_not_hear_is_killed_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.sweep.supervise.GRACE_SECONDS", 0.5)
    (tmp_path / "stop").touch()
    began = time.monotonic()
    assert _code_of(sleeper(deaf=True), tmp_path / "stop") == -signal.SIGKILL
    assert time.monotonic() - began < 20


def test_a_job_that_was_killed_is_named_by_its_signal(tmp_path: Path) -> None:
    outcome = _outcome(-signal.SIGKILL, tmp_path / "log.txt", asked=False)
    assert outcome == {"state": "failed", "cause": "killed by SIGKILL"}


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("grpo: running\nTraceback\n  line\nValueError: no\n\n \n", "ValueError: no"),
        ("", "it said nothing"),
        ("x" * 10_000, "x" * (LONGEST_CAUSE - 1) + "…"),
    ],
)
def test_the_cause_is_the_last_line_that_says_something(log: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(log)
    assert last_line(tmp_path / "log.txt") == said
