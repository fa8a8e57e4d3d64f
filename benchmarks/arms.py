"""The benchmark's side of the protocol: an arm is a process that receives requests for one repeat at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from experiments.system.files import last_line

Show = Callable[[str], None]
"""Shows the current measurement."""
ROOT = Path(__file__).resolve().parents[1]
TRAINERS = {"cpu": "cpu", "cuda": "gpu"}
"""Device of all arms → trainer of our own arm."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


class ArmFailed(RuntimeError):
    """Raised if an arm has ended; the message is one sentence."""


class Skipped(RuntimeError):
    """Raised if an arm does not support a measure; the message is the arm's reason."""


class Repeat(NamedTuple):
    """The answer of an arm to one request."""

    figures: Mapping[str, float]
    """Measure → seconds; for ``peak_memory`` GiB."""
    tokens: Mapping[str, Any]
    """Token counts of the work done."""


class Arm:
    """A running arm. Its other output goes to ``log``.

    Raises:
        ArmFailed: if it ends before it is ready.
    """

    def __init__(self, name: str, command: Sequence[str], *, log: Path) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=os.environ | OFFLINE,
            )
        self.versions: Mapping[str, str] = self._read()["ready"]

    def request(self, measure: str) -> Repeat:
        """Requests one repeat. Raises Skipped if the arm does not support the measure, ArmFailed if it has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"measure": measure}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None
        answer = self._read()
        if "skipped" in answer:
            raise Skipped(answer["skipped"])
        return Repeat(figures=answer["figures"], tokens=answer["tokens"])

    def close(self) -> None:
        """Closes the input of the process, which ends it; kills it after 20 s."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self) -> Mapping[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self._failed()
        return json.loads(line)

    def _failed(self) -> ArmFailed:
        self.process.wait()
        return ArmFailed(f"{self.name} ended: {last_line(self.log, default='without output')}")


Figures = dict[str, dict[str, list[float]]]
"""Arm → measure → figure of each repeat."""


def race(arms: Sequence[Arm], requests: Sequence[str], *, warm: Collection[str], repeats: int, show: Show) -> Figures:
    """Returns the figures of ``repeats`` answers to every request, after one warm-up answer that is not counted.

    Requests in ``warm`` need no warm-up, because every arm has answered them before. The first arm is ours. The result
    omits a peer that ends before the last repeat.

    Raises:
        ArmFailed: if the first arm has ended.
    """
    figures: Figures = defaultdict(lambda: defaultdict(list))
    lost: set[str] = set()
    for repeat in range(repeats + 1):
        for request, arm in product(requests, arms):
            if arm.name in lost or (repeat == 0 and request in warm):
                continue
            show(f"{f'repeat {repeat} of {repeats}' if repeat else 'warm-up'} · {request} · {arm.name}")
            try:
                answer = arm.request(request)
            except ArmFailed:
                if arm is arms[0]:
                    raise
                lost.add(arm.name)
                continue
            for measure, value in answer.figures.items() if repeat else ():
                figures[arm.name][measure].append(value)
    return {name: of_arm for name, of_arm in figures.items() if name not in lost}


TRL = "1.16.0"
REQUIREMENTS = (
    "torch==2.13.0",
    f"trl=={TRL}",
    "transformers==5.23.0",
    "accelerate==1.15.0",
    "datasets==5.2.0",
    "tokenizers==0.23.3",
    "numpy==2.4.6",
)
"""torch and transformers have our versions, so that a ratio is not due to them. One pip command installs all."""


class NoEnvironment(RuntimeError):
    """Raised if the peers cannot be installed; the message is one sentence."""


def peer_python(folder: Path) -> Path:
    """Returns the interpreter of the environment in ``folder``, after installing what is missing there.

    Raises:
        NoEnvironment: if pip fails (no network, no such version).
    """
    python = folder / "bin" / "python"
    commands = {} if python.is_file() else {"make an environment": [sys.executable, "-m", "venv", str(folder)]}
    commands["install " + ", ".join(REQUIREMENTS)] = [str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS]
    for what, command in commands.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit status {done.returncode}"
            raise NoEnvironment(f"could not {what}: {reason}")
    return python
