r"""AnswerPool with real processes. Most are stand-ins that load nothing: their reply to ``\sqrt{n}`` depends on n."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contrastive_reasoning.tasks.answer import verify_answer
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.workers import answers
from contrastive_reasoning.workers.answers import AnswerPool, answer_worker
from contrastive_reasoning.workers.failures import VerifierFailed
from contrastive_reasoning.workers.pool import Worker

OK = Verdict(status="ok", reason="")
HANG, CRASH, ERROR = 13, 17, 19
STAND_IN = r"""
import json, os, sys, time
print(json.dumps(["ready", ""]), flush=True)
for line in sys.stdin:
    n = int("".join(sign for sign in json.loads(line)[1] if sign.isdigit()))
    if n == 13:
        time.sleep(600)
    if n == 17:
        os.kill(os.getpid(), 9)
    reply = ["fatal", "out of memory"] if n == 19 else ["ok", ""] if n % 2 == 0 else ["wrong", f"{os.getpid()}"]
    print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def pool_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AnswerPool]]:
    monkeypatch.setattr(answers, "answer_worker", lambda: [sys.executable, "-c", STAND_IN])
    pools: list[AnswerPool] = []

    def build(workers: int = 2, limit_s: float = 60.0, max_failures: float = 0.2) -> AnswerPool:
        pools.append(AnswerPool(workers=workers, limit_s=limit_s, max_failures=max_failures))
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()


def roots(*numbers: int) -> list[tuple[str, str]]:
    """Returns one pair per number, which needs a worker to be settled."""
    return [(r"2\sqrt{3}", rf"\boxed{{\sqrt{{{number}}}}}") for number in numbers]


def pids(pool: AnswerPool) -> set[int]:
    return {worker.process.pid for worker in pool.pool.running}


def test_answers_without_algebra_start_no_worker(pool_of: Callable[..., AnswerPool]) -> None:
    pool = pool_of()
    pairs = [("7", r"\boxed{7.0}"), ("7", "no idea"), ("1,2", r"\boxed{2,1}"), ("7", r"\boxed{9^{9^{9^9}}}")]
    assert [verdict.status for verdict in pool(pairs)] == ["ok", "unparsed", "ok", "unparsed"]
    assert [verdict.status for verdict in pool([("B", r"\boxed{B}"), ("B", r"\boxed{C}")], "choice")] == ["ok", "wrong"]
    assert not pids(pool)


def test_verdicts_keep_order_and_workers_start_when_needed(pool_of: Callable[..., AnswerPool]) -> None:
    pool = pool_of(workers=2)
    pool(roots(20))
    first = pids(pool)
    assert len(first) == 1
    numbers = [*range(20, 60), 13 * 2]
    assert [verdict.correct for verdict in pool(roots(*numbers))] == [number % 2 == 0 for number in numbers]
    assert len(pids(pool)) == 2
    assert first < pids(pool)


def test_repeated_hanging_answer_times_out_once(
    pool_of: Callable[..., AnswerPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    kill = Worker.kill
    monkeypatch.setattr(Worker, "kill", lambda worker: [killed.append(worker.process.pid), kill(worker)])
    pool = pool_of(workers=2, limit_s=1.0)
    verdicts = pool(roots(20, HANG, *range(22, 40, 2), HANG))
    assert [verdict.status for verdict in verdicts] == ["ok", "timeout", *["ok"] * 9, "timeout"]
    assert verdicts[1].reason == "no reply within 1 s"
    assert len(killed) == 1
    assert pool(roots(20)) == [OK]


def test_crash_is_error_and_other_verdicts_are_kept(pool_of: Callable[..., AnswerPool]) -> None:
    pool = pool_of(workers=1)
    reasons = ["", "worker ended with exit code -9", "", "out of memory", ""]
    expected = [Verdict(status="error" if reason else "ok", reason=reason) for reason in reasons]
    assert pool(roots(20, CRASH, 22, ERROR, 24)) == expected


def crashes(*spellings: str) -> list[tuple[str, str]]:
    return [(r"2\sqrt{3}", rf"{words} \boxed{{\sqrt{{{CRASH}}}}}") for words in spellings]


def test_more_errors_than_max_failures_raise(pool_of: Callable[..., AnswerPool]) -> None:
    settled = [("7", rf"It is \boxed{{{number}}}") for number in range(15)]
    pool = pool_of(workers=1, max_failures=0.1)
    assert sum(not verdict.judged for verdict in pool(roots(20, CRASH, ERROR, 22, 24) + settled)) == 2
    with pytest.raises(VerifierFailed, match=r"3 of the last 21 .*max_failures=0\.1 .*exit code -9"):
        pool(crashes("Hence"))


def test_equal_answers_that_crash_count_as_one_error(pool_of: Callable[..., AnswerPool]) -> None:
    """A policy that repeats one answer must not count as a broken verifier."""
    settled = [("7", rf"It is \boxed{{{number}}}") for number in range(19)]
    pool = pool_of(workers=1, max_failures=0.1)
    alike = crashes("So", "Hence", "Thus", "It is", "We get")
    assert [verdict.status for verdict in pool(settled + alike)][19:] == ["error"] * 5


def test_worker_that_died_between_calls_is_replaced(pool_of: Callable[..., AnswerPool]) -> None:
    pool = pool_of(workers=1)
    pool(roots(20))
    (pid,) = pids(pool)
    os.kill(pid, signal.SIGKILL)
    pool.pool.running[0].process.wait()
    assert pool(roots(22)) == [OK]
    assert pids(pool) != {pid}


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_call_leaves_no_pending_answer(pool_of: Callable[..., AnswerPool]) -> None:
    pool = pool_of(workers=1, limit_s=60.0)  # the interrupt comes first on any machine
    pool(roots(20))
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pool(roots(HANG))
    timer.join()
    assert not pids(pool)
    assert pool(roots(20)) == [OK]


def test_worker_that_does_not_start_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "answer_worker", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    pool = AnswerPool(workers=2, limit_s=1.0, max_failures=0.2)
    with pytest.raises(VerifierFailed, match="exit code 3"):
        pool(roots(20))
    pool.close()


def test_close_ends_workers_and_pickle_keeps_settings(pool_of: Callable[..., AnswerPool]) -> None:
    with closing(pool_of()) as pool:
        pool(roots(20, 22))
        running = pids(pool)
    assert not pids(pool)
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)
    copy = pickle.loads(pickle.dumps(pool))
    assert (copy.workers, copy.limit_s, copy.errors.limit) == (pool.workers, pool.limit_s, pool.errors.limit)


def test_real_worker_matches_verdicts_of_this_process() -> None:
    """One start of a real worker, which gives the same verdicts as this process and does not load torch."""
    pairs = [*roots(12, 13), ("x^2+2x", r"\boxed{x(x+2)}"), ("7", r"\boxed{7}"), (r"7 \foo 8", r"\boxed{\sqrt2}")]
    with closing(AnswerPool(workers=1, limit_s=120.0, max_failures=0.0)) as pool:
        assert pool(pairs) == [verify_answer(*pair) for pair in pairs]
        (pid,) = pids(pool)
        os.kill(pid, signal.SIGINT)
        assert pool(roots(12)) == [OK]
        assert pids(pool) == {pid}
        maps = Path(f"/proc/{pid}/maps")
        assert not maps.exists() or "libtorch" not in maps.read_text()


def test_limit_memory_bounds_worker_memory() -> None:
    resource = pytest.importorskip("resource")
    if sys.platform != "linux":
        pytest.skip("the address space of a process is limited on Linux only")
    code = "import contrastive_reasoning.workers.answers as w; w.limit_memory(2**28); bytearray(2**29)"
    assert "MemoryError" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 2**28


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for a process in /proc")
def test_workers_end_with_their_parent() -> None:
    """The parent is killed while its worker works on an answer; the worker then ends by itself."""
    code = textwrap.dedent(
        """
        import json, os, subprocess, sys
        worker = subprocess.Popen(json.loads(sys.argv[1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        worker.stdout.readline()
        worker.stdin.write(json.dumps(["a+b+c+d+f+g", "((a+b+c+d+f+g)^{30}+1)^{30}"]).encode() + b"\\n")
        worker.stdin.flush()
        print(worker.pid, flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    command = json.dumps(answer_worker())
    parent = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True)
    process = Path(f"/proc/{int(parent.stdout)}")
    until = time.monotonic() + 60
    while process.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not process.exists()
