"""Functions that fail in the way that the completion names. Workers import this module, so its imports are light."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contrastive_reasoning.tasks.base import Problem


def raises() -> float:
    raise ValueError("no such unit\nand more")


def hangs() -> float:
    while True:
        time.sleep(3600)


def hangs_in_c() -> float:
    """Matches a pattern that backtracks almost endlessly; the match keeps the interpreter lock and ignores signals."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    return float(bool(re.match(r"(a+)+$", "a" * 64 + "b")))


def leaves_a_child() -> float:
    """Starts a child process, writes its id to a file and waits for it."""
    child = subprocess.Popen(["sleep", "3600"])
    Path(os.environ["CHILD_FILE"]).write_text(str(child.pid))
    return float(child.wait())


HARM: dict[str, Callable[[], Any]] = {
    "raises": raises,
    "hangs": hangs,
    "hangs in C": hangs_in_c,
    "ends its process": lambda: os._exit(1),
    "asks for the end": lambda: sys.exit("enough"),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "takes a gigabyte": lambda: len(bytearray(2**30)),
    "returns None": lambda: None,
    "leaves a child": leaves_a_child,
}


def number_or_harm(problem: Problem, completion: str, *, scale: float = 1.0) -> float:
    """Returns the completion as a number times ``scale``, or fails in the way that the completion names."""
    print("a line between the replies", flush=True)
    return HARM[completion]() if completion in HARM else scale * float(completion)


def process_of(problem: Problem, completion: str) -> float:
    return float(os.getpid())


def problem_of(problem: Problem, completion: str) -> float:
    """Returns the first number of the problem if the completion arrived unchanged, else 0."""
    return float(problem.fields["numbers"][0]) * (completion == "é\udcff漢")


class Unloadable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple:
        return raise_import_error, ()

    def __call__(self, problem: Problem, completion: str) -> float:
        return 0.0


def raise_import_error() -> None:
    raise ImportError("no module named units")


VERDICTS: dict[str, Any] = {"right": True, "no": False, "why": "uses 7 twice"}


def verdict_or_harm(problem: Problem, completion: str, *, right: str = "") -> Any:
    """Returns the verdict that the completion names, or fails in the way that it names.

    For any other completion, returns whether it is the answer.
    """
    if completion in HARM:
        return HARM[completion]()
    return VERDICTS.get(completion, completion in (problem.answer, right))


def quotes(problem: Problem, completion: str) -> str:
    """Returns the completion itself as the reason."""
    return completion


def lengths(prompts: Any, completions: Any, **columns: Any) -> Any:
    """Returns each completion's length (None for an empty one), or fails in the way that the first completion names."""
    if completions[0] in HARM:
        return HARM[completions[0]]()
    return [float(len(text)) if text else None for text in completions]


def process(completions: list[str]) -> list[float]:
    return [float(os.getpid())] * len(completions)


def solution_in(completions: list[str], solution: list[str], weight: float = 1.0) -> list[float]:
    return [weight * (gold in text) for text, gold in zip(completions, solution, strict=True)]
