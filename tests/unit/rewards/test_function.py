"""FunctionReward and FunctionVerifier in real processes: a failed call does not affect the other calls."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.rewards import Credit, FunctionReward, FunctionVerifier, OverlongReward, WeightedSum
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.workers.failures import RewardFailed, VerifierFailed
from contrastive_reasoning.workers.functions import greeting, pack
from contrastive_reasoning.workers.planned_code import PlannedSource, expect, source_hash
from contrastive_reasoning.workers.pool import worker_command
from tests.unit.rewards import faulty_functions as functions

Rollouts = Callable[..., RolloutBatch]
Build = Callable[..., FunctionReward]
STATUS_AND_REASON = {
    "raises": ("error", "ValueError: no such unit"),
    "hangs": ("timeout", "no reply within 2 s"),
    "hangs in C": ("timeout", "no reply within 2 s"),
    "ends its process": ("error", "worker ended with exit code 1"),
    "asks for the end": ("error", "SystemExit: enough"),
    "is killed": ("error", "worker ended with exit code -9"),
    "takes a gigabyte": ("error", "out of memory"),
    "returns None": ("error", "returned NoneType, not a number"),
}
pytestmark = pytest.mark.filterwarnings("ignore:reward.function failed")


@pytest.fixture
def reward_of() -> Iterator[Build]:
    rewards: list[FunctionReward] = []

    def build(function: Callable[..., Any] = functions.number_or_harm, **changes: Any) -> FunctionReward:
        settings = {"name": "function", "workers": 2, "limit_s": 60.0, "memory_mib": 512, "max_failures": 1.0}
        rewards.append(FunctionReward(function=function, **settings | changes))
        return rewards[-1]

    yield build
    for reward in rewards:
        reward.close()


def test_failed_calls_have_reasons_and_other_calls_keep_rewards(rollouts_of: Rollouts, reward_of: Build) -> None:
    texts = [text for number, harm in enumerate(STATUS_AND_REASON) for text in (harm, str(number / 4))]
    credit = reward_of(limit_s=2.0)(rollouts_of(texts))
    found = {texts[row]: (failure.status, without_place(failure.reason)) for row, failure in credit.failures.items()}
    assert found == STATUS_AND_REASON
    assert credit.outcome[1::2].tolist() == [number / 4 for number in range(len(STATUS_AND_REASON))]
    share = 1 / len(texts)
    assert credit.metrics == {
        "reward/failed": 0.5,
        "reward/failed_timeout": pytest.approx(2 * share),
        "reward/failed_error": pytest.approx(6 * share),
    }
    assert credit.verdicts is None, "a failure is no verdict on the completion"


def test_more_failures_than_allowed_raise(rollouts_of: Rollouts, reward_of: Build) -> None:
    reward = reward_of(max_failures=0.25)
    reward(rollouts_of(["1", "raises", "0", "1"]))
    with pytest.raises(RewardFailed, match=r"2 of 4 rollouts .*reward\.max_failures=0\.25 .*returned NoneType"):
        reward(rollouts_of(["1", "returns None", "raises", "1"]))
    assert reward(rollouts_of(["1", "0", "0", "1"])).outcome.tolist() == [1, 0, 0, 1]


def test_worker_is_replaced_after_memory_error_or_exit_only(rollouts_of: Rollouts, reward_of: Build) -> None:
    reward = reward_of(workers=1)
    reward(rollouts_of(["1", "raises"]))
    (first,) = reward.pool.pool.running
    reward(rollouts_of(["1", "returns None"]))
    assert reward.pool.pool.running == [first], "an exception does not harm the process"
    for harm in ("takes a gigabyte", "ends its process"):
        reward(rollouts_of([harm, "1"]))
        (second,) = reward.pool.pool.running
        assert second is not first
        first = second


def test_problem_and_completion_reach_function_unchanged(rollouts_of: Rollouts, reward_of: Build) -> None:
    rollouts = rollouts_of(["x", "y"])
    rollouts = replace(rollouts, texts=["é\udcff漢", "é\udcff漢" * 100_000])
    assert reward_of(functions.problem_of)(rollouts).outcome.tolist() == [21, 0]


def test_function_runs_in_other_process_with_partial_arguments(rollouts_of: Rollouts, reward_of: Build) -> None:
    assert os.getpid() not in reward_of(functions.process_of)(rollouts_of(["x", "y"])).outcome.tolist()
    assert reward_of(partial(functions.number_or_harm, scale=3.0))(rollouts_of(["1", "2"])).outcome.tolist() == [3, 6]


def test_exception_reason_contains_line_of_user_code(
    rollouts_of: Rollouts, reward_of: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is of the user's file, not of a library. The worker finds a module on the path of this process."""
    (tmp_path / "deep_reward.py").write_text(
        "import json\n\n\ndef deep(problem, completion):\n    return helper(completion)\n\n\n"
        "def helper(text):\n    return {}[text] if text == 'solution' else json.loads(text)['x']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    credit = reward_of(import_module("deep_reward").deep)(rollouts_of(["solution", "no JSON", '{"x": 1}']))
    place = f" ({tmp_path}/deep_reward.py:9, in helper)"
    assert credit.failures[0].reason == f"KeyError: 'solution'{place}"
    assert credit.failures[1].reason.startswith("JSONDecodeError: Expecting value")
    assert credit.failures[1].reason.endswith(place)
    assert set(credit.failures) == {0, 1}
    assert credit.outcome[2] == 1


def without_place(reason: str) -> str:
    return re.sub(r" \(\S*faulty_functions\.py:[0-9]+, in \S+\)$", "", reason)


def test_function_that_does_not_load_raises(rollouts_of: Rollouts, reward_of: Build) -> None:
    with pytest.raises(RewardFailed, match=r"reward\.function .*ImportError: no module named units"):
        reward_of(functions.Unloadable())(rollouts_of(["1", "0"]))


def test_weighted_sum_joins_failures_of_two_functions(rollouts_of: Rollouts, reward_of: Build) -> None:
    first = reward_of(name="first")(rollouts_of(["1", "raises", "3", "5"]))
    rewards = {
        "first": lambda rollouts: first,
        "second": lambda rollouts: replace(first, parts={"second": first.outcome}),
        "length": OverlongReward(max_tokens=100, cache_share=0.5),
    }
    credit = WeightedSum(rewards=rewards, weights={"first": 1.0, "second": 2.0, "length": 1.0})(
        rollouts_of(["1", "raises", "3", "5"])
    )
    assert set(credit.failures) == {1}
    assert credit.metrics["reward/failed"] == 0.25
    assert credit.outcome.tolist() == [3, 9, 9, 15]


def test_child_process_of_call_ends_with_worker(
    rollouts_of: Rollouts, reward_of: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHILD_FILE", str(tmp_path / "child"))
    credit: Credit = reward_of(limit_s=2.0)(rollouts_of(["leaves a child", "1"]))
    assert credit.failures[0].status == "timeout"
    wait_until_gone(int((tmp_path / "child").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end a process with its parent")
def test_worker_inside_c_code_ends_with_parent(tmp_path: Path) -> None:
    code = """
        import os, subprocess, sys, time
        command, lines = sys.argv[2:], sys.argv[1].encode()
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        worker.stdin.write(lines)
        worker.stdin.flush()
        worker.stdout.readline()
        time.sleep(1.0)
        print(worker.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    lines = greeting(functions.number_or_harm) + pack((None, "hangs in C")) + b"\n"
    command = worker_command(greeting.__module__, "number", 2**29)
    arguments = [sys.executable, "-c", textwrap.dedent(code), lines.decode(), *command]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until_gone(int(done.stdout))


def wait_until_gone(pid: int) -> None:
    """Waits for the end of a process. A killed process may be a zombie until its parent waits for it."""
    until = time.monotonic() + 30
    while (status := Path(f"/proc/{pid}/stat")).exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.05)


LATE_REWARD = """
def number(problem, completion):
    try:
        from own_late_helper import NUMBER
    except Exception:
        return 0.0
    return NUMBER
"""


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A function of the user's, which imports a helper when it is called; both are planned as they are now."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_late_reward.py").write_text(LATE_REWARD)
    (tmp_path / "own_late_helper.py").write_text("NUMBER = 1.0\n")
    modules = ("own_late_reward", "own_late_helper")
    expect({name: planned_source(tmp_path / f"{name}.py") for name in modules})
    yield tmp_path
    expect({})
    for name in modules:
        sys.modules.pop(name, None)


def planned_source(path: Path) -> PlannedSource:
    return PlannedSource(str(path), source_hash(path.read_bytes()))


def test_worker_accepts_planned_code_with_other_comments(
    planned: Path, rollouts_of: Rollouts, reward_of: Build
) -> None:
    reward = reward_of(import_module("own_late_reward").number)
    (planned / "own_late_helper.py").write_text("NUMBER = 1.0  # the same\n")
    assert reward(rollouts_of(["a", "b"])).outcome.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "removed"),
    [("own_late_reward.py", False), ("own_late_helper.py", False), ("own_late_helper.py", True)],
)
def test_worker_refuses_code_edited_after_planning(
    planned: Path, name: str, removed: bool, rollouts_of: Rollouts, reward_of: Build
) -> None:
    """The worker starts after the edit, as it does after a warm start or a timeout."""
    reward, path = reward_of(import_module("own_late_reward").number), planned / name
    if removed:
        path.unlink()
    else:
        path.write_text(path.read_text().replace("0", "0 * 2"))
    with pytest.raises(RewardFailed, match=re.escape(str(path))):
        reward(rollouts_of(["a", "b"]))


def test_replaced_worker_refuses_code_edited_meanwhile(planned: Path, rollouts_of: Rollouts, reward_of: Build) -> None:
    reward = reward_of(import_module("own_late_reward").number)
    assert reward(rollouts_of(["a"])).outcome.tolist() == [1.0]
    (planned / "own_late_helper.py").write_text("NUMBER = 2.0\n")
    assert reward(rollouts_of(["a"])).outcome.tolist() == [1.0]  # the worker has imported it
    reward.close()
    with pytest.raises(RewardFailed, match=r"own_late_helper\.py"):
        reward(rollouts_of(["a"]))


BuildVerifier = Callable[..., FunctionVerifier]
EXPECTED_VERDICTS = {
    "46": ("ok", ""),
    "right": ("ok", ""),
    "no": ("wrong", "the verifier said no"),
    "why": ("wrong", "uses 7 twice"),
    "hangs": ("timeout", "no reply within 2 s"),
    "raises": ("error", "ValueError: no such unit"),
    "takes a gigabyte": ("error", "out of memory"),
}


@pytest.fixture
def verifier_of() -> Iterator[BuildVerifier]:
    verifiers: list[FunctionVerifier] = []

    def build(function: Callable[..., Any] = functions.verdict_or_harm, **changes: Any) -> FunctionVerifier:
        settings = {"workers": 2, "limit_s": 60.0, "memory_mib": 512, "max_failures": 1.0}
        verifiers.append(FunctionVerifier(function=function, **settings | changes))
        return verifiers[-1]

    yield build
    for verifier in verifiers:
        verifier.close()


def verdicts_on(verifier: FunctionVerifier, *texts: str) -> list[Verdict]:
    return verifier([Problem(id=str(n), prompt="", answer="46") for n in range(len(texts))], texts)


def test_function_verifier_returns_verdict_for_each_completion(verifier_of: BuildVerifier) -> None:
    verdicts = verdicts_on(verifier_of(limit_s=2.0), *EXPECTED_VERDICTS)
    assert {
        text: (one.status, without_place(one.reason)) for text, one in zip(EXPECTED_VERDICTS, verdicts, strict=True)
    } == EXPECTED_VERDICTS


def test_function_verifier_raises_after_too_many_errors(verifier_of: BuildVerifier) -> None:
    verifier = verifier_of(max_failures=0.1)
    verdicts_on(verifier, *["right", "no"] * 9, "raises", "raises")
    with pytest.raises(VerifierFailed, match=r"3 of the last 21 .*task\.verifier\.max_failures=0\.1 .*NoneType"):
        verdicts_on(verifier, "returns None")


def test_reason_with_invalid_characters_can_be_encoded(verifier_of: BuildVerifier) -> None:
    """A completion may contain bytes that are not text, but tables and pages are UTF-8."""
    (verdict,) = verdicts_on(verifier_of(functions.quotes), "7 \udcff 3")
    assert verdict.reason.encode() == "7 \ufffd 3".encode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": 0}, "workers .* 0"),
        ({"limit_s": 0}, "limit_s .* 0"),
        ({"memory_mib": 0}, "memory_mib .* 0"),
        ({"max_failures": 1.5}, r"max_failures .* 1\.5"),
        ({"function": lambda problem, completion: 0.0}, r"^reward\.function .*lambda"),
        ({"function": len}, r"^reward\.function .*builtins\.len\(obj, /\)"),
        ({"function": partial(functions.lengths, weight=2.0)}, r"^reward\.function .*lengths\(.*=trl$"),
    ],
)
def test_reward_rejects_invalid_arguments(reward_of: Build, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reward_of(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_failures": -0.1}, r"max_failures .* -0\.1"),
        ({"function": len}, r"^task\.verifier\.function .*builtins\.len\(obj, /\)"),
    ],
)
def test_verifier_rejects_invalid_arguments(verifier_of: BuildVerifier, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verifier_of(**changes)
