"""A function as the verifier, in real processes: every completion has a verdict, whatever one comes to."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from contrastive_reasoning.rewards import FunctionVerifier
from contrastive_reasoning.rewards.failures import RewardFailed
from contrastive_reasoning.tasks.base import Problem, Verdict
from tests.unit.rewards import faulty_rewards
from tests.unit.rewards.faulty_verifiers import quotes, verdict_or_harm

Build = Callable[..., FunctionVerifier]
SAID = {
    "46": ("ok", ""),
    "right": ("ok", ""),
    "no": ("wrong", "the verifier said no"),
    "half": ("wrong", "scored 0.5"),
    "why": ("wrong", "uses 7 twice"),
    "hangs": ("timeout", "no reply within 2 s"),
    "raises": ("error", "ValueError: no such unit"),
    "ends its process": ("error", "worker ended with exit code 1"),
    "takes a gigabyte": ("error", "out of memory"),
    "returns None": ("error", "returned NoneType, not true, false, a number from 0 to 1, or a reason"),
    "empty": ("error", "returned an empty text, which is no reason"),
    "two": ("error", "returned 2, which is not between 0 and 1"),
}


@pytest.fixture
def verifier_of() -> Iterator[Build]:
    verifiers: list[FunctionVerifier] = []

    def build(function: Callable[..., Any] = verdict_or_harm, **changes: Any) -> FunctionVerifier:
        settings = {"workers": 2, "limit_s": 60.0, "memory_mib": 512, "max_failures": 1.0}
        verifiers.append(FunctionVerifier(function=function, **settings | changes))
        return verifiers[-1]

    yield build
    for verifier in verifiers:
        verifier.close()


def judged(verifier: FunctionVerifier, *texts: str) -> list[Verdict]:
    return verifier([Problem(id=str(n), prompt="", answer="46") for n in range(len(texts))], texts)


def test_every_completion_has_its_verdict_and_no_other_is_lost(verifier_of: Build) -> None:
    verdicts = judged(verifier_of(limit_s=2.0), *SAID)
    assert {text: (one.status, one.reason) for text, one in zip(SAID, verdicts, strict=True)} == SAID


def test_too_many_errors_end_the_run_with_a_sentence(verifier_of: Build) -> None:
    verifier = verifier_of(max_failures=0.1)
    judged(verifier, *["right", "no"] * 9, "raises", "raises")
    with pytest.raises(RewardFailed) as refused:
        judged(verifier, "returns None")
    assert str(refused.value) == (
        "the verifier failed on 3 of the last 21 completions, more than task.verifier.max_failures=0.1 allows; the "
        "last time: returned NoneType, not true, false, a number from 0 to 1, or a reason"
    )


def test_how_many_are_judged_together_decides_nothing(verifier_of: Build) -> None:
    """An evaluation asks for what has ended since its last line of progress."""
    verifier = verifier_of(max_failures=0.2)
    texts = ["right"] * 20 + ["raises"] + ["right"] * 19
    verdicts = [verdict for begin in range(0, 40, 2) for verdict in judged(verifier, *texts[begin : begin + 2])]
    assert [verdict.status for verdict in verdicts].count("error") == 1


def test_a_timeout_is_the_completions_doing_and_ends_nothing(verifier_of: Build) -> None:
    verifier = verifier_of(limit_s=0.5, max_failures=0.0)
    judged(verifier, *["right"] * 20)
    assert [verdict.status for verdict in judged(verifier, "hangs", "hangs")] == ["timeout", "timeout"]


def test_an_error_among_few_completions_ends_nothing(verifier_of: Build) -> None:
    """As in a table of examples."""
    verdicts = judged(verifier_of(max_failures=0.0), "raises", "right")
    assert [verdict.status for verdict in verdicts] == ["error", "ok"]


def test_a_reason_that_quotes_broken_characters_can_be_written(verifier_of: Build) -> None:
    """What a model wrote may hold bytes that are no text; tables and pages are UTF-8."""
    (verdict,) = judged(verifier_of(quotes), "7 \udcff 3")
    assert verdict.reason.encode() == "7 \ufffd 3".encode()


def test_further_arguments_and_none_at_all(verifier_of: Build) -> None:
    assert judged(verifier_of(partial(verdict_or_harm, right="47")), "47", "48")[0].correct
    assert judged(verifier_of()) == []


def test_it_travels_to_other_processes_with_its_task(verifier_of: Build) -> None:
    verifier = verifier_of()
    judged(verifier, "46")
    there = pickle.loads(pickle.dumps(verifier))
    assert there.pool.pool.running == []
    assert judged(there, "46")[0].correct
    there.close()


def test_its_workers_are_used_again_and_end_when_it_is_closed(verifier_of: Build) -> None:
    verifier = verifier_of(workers=1)
    judged(verifier, "46", "raises")
    (first,) = verifier.pool.pool.running
    judged(verifier, "46")
    assert verifier.pool.pool.running == [first]
    assert first.process.pid != os.getpid()
    verifier.close()
    assert verifier.pool.pool.running == []


def test_what_no_worker_can_load_ends_the_run_with_a_sentence(verifier_of: Build) -> None:
    sentence = r"^task\.verifier\.function does not load in a process .*: ImportError: no module named units$"
    with pytest.raises(RewardFailed, match=sentence):
        judged(verifier_of(faulty_rewards.Unloadable()), "46")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"limit_s": 0.0}, "limit_s must be positive, got 0"),
        ({"memory_mib": 0}, "memory_mib must be at least 1, got 0"),
        ({"max_failures": -0.1}, r"max_failures must lie in \[0, 1\], got -0.1"),
        ({"function": lambda problem, completion: True}, "function must be importable by its name .*lambda"),
        ({"function": len}, r"function must take \(problem, completion\), <built-in function len> does not"),
    ],
)
def test_refuses_what_cannot_be_meant(verifier_of: Build, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        verifier_of(**changes)
