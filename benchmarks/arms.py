"""The benchmark's side of the conversation: an arm is a process that is asked for one repeat at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from experiments.system.files import write_json

Tell = Callable[[str], None]
"""Shows what is being measured right now."""
ROOT = Path(__file__).resolve().parents[1]
TRAINERS = {"cpu": "cpu", "cuda": "gpu"}
"""Where all arms compute → the trainer of ours."""
SAFE_PATH = "PYTHONSAFEPATH"
"""The console command sets it; an interpreter of peers finds this package by its working folder alone."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


class ArmFailed(RuntimeError):
    """An arm ended, or said what nobody can read; the message is one sentence."""


class Skipped(RuntimeError):
    """An arm does not measure that; the message is its sentence."""


class Repeat(NamedTuple):
    """What an arm says of one repeat."""

    figures: Mapping[str, float]
    """By measure: seconds, of ``peak_memory`` GiB."""
    tokens: Mapping[str, Any]
    """What work that was."""


class Arm:
    """A running arm. What it prints besides its answers is in ``log``.

    Raises:
        ArmFailed: where it does not come up.
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
                env={name: value for name, value in os.environ.items() if name != SAFE_PATH} | OFFLINE,
            )
        self.versions: Mapping[str, str] = self._hear()["ready"]

    def ask(self, measure: str) -> Repeat:
        """One repeat. Raises Skipped where the arm does not measure that, and ArmFailed where it has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"measure": measure}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None
        heard = self._hear()
        if "skipped" in heard:
            raise Skipped(heard["skipped"])
        return Repeat(figures=heard["figures"], tokens=heard["tokens"])

    def close(self) -> None:
        """End its input, and with it the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _hear(self) -> Mapping[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self._failed()
        return json.loads(line)

    def _failed(self) -> ArmFailed:
        self.process.wait()
        lines = [line.strip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "without a word")
        return ArmFailed(f"{self.name} ended: {last}")


Figures = dict[str, dict[str, list[float]]]
"""Arm → measure → the figure of each repeat."""


def race(
    arms: Sequence[Arm], asked: Mapping[str, Sequence[str]], *, warm: Collection[str], repeats: int, tell: Tell
) -> Figures:
    """Figures of ``repeats`` counted answers to every request, after one of each that is not counted.

    A peer that ends on the way is left out of what is returned.

    Args:
        arms: the first one takes part in every request.
        asked: request → names of the other arms that take part.
        warm: requests that every arm has answered before, so that the first answer counts.
        repeats: counted ones.
        tell: called before every answer.

    Raises:
        ArmFailed: where the first arm has ended.
    """
    figures: Figures = defaultdict(lambda: defaultdict(list))
    lost: set[str] = set()
    for repeat in range(repeats + 1):
        for request, arm in ((request, arm) for request in asked for arm in arms):
            takes_part = arm is arms[0] or (arm.name in asked[request] and arm.name not in lost)
            if not takes_part or (repeat == 0 and request in warm):
                continue
            tell(f"{f'repeat {repeat} of {repeats}' if repeat else 'warm-up'} · {request} · {arm.name}")
            try:
                answer = arm.ask(request)
            except ArmFailed:
                if arm is arms[0]:
                    raise
                lost.add(arm.name)
                continue
            for measure, value in answer.figures.items() if repeat else ():
                figures[arm.name][measure].append(value)
    return {name: of_arm for name, of_arm in figures.items() if name not in lost}


@contextmanager
def arms_that_close() -> Iterator[list[Arm]]:
    """Arms to be added to; all are closed at the end, whatever happens."""
    arms: list[Arm] = []
    try:
        yield arms
    finally:
        for arm in arms:
            arm.close()


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
"""torch and transformers as ours, so that an arm's advantage is not its library's. pip gets all in one command."""
STAMP = "installed.json"


class NoEnvironment(RuntimeError):
    """The peers could not be installed; the message is one sentence."""


def peer_python(folder: Path, requirements: tuple[str, ...] = REQUIREMENTS) -> Path:
    """The interpreter of the environment in ``folder``, which is made where it is not there or of other versions.

    Raises:
        NoEnvironment: where pip does not succeed: no network, no such version.
    """
    python, stamp = folder / "bin" / "python", folder / STAMP
    if stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8")) == list(requirements):
        return python
    stamp.unlink(missing_ok=True)
    commands = {
        "make an environment": [sys.executable, "-m", "venv", str(folder)],
        "install " + ", ".join(requirements): [str(python), "-m", "pip", "install", "--quiet", *requirements],
    }
    for what, command in commands.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit status {done.returncode}"
            raise NoEnvironment(f"could not {what}: {reason}")
    write_json(stamp, list(requirements))
    return python
