"""The benchmark's side of the conversation: an arm is a process that is asked for one repeat at a time."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


class ArmFailed(RuntimeError):
    """An arm ended, or said what nobody can read; the message is one sentence."""


class Skipped(RuntimeError):
    """An arm does not measure that; the message is its sentence."""


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """What an arm says of one repeat."""

    seconds: Mapping[str, float]
    """By measure."""
    tokens: Mapping[str, Any] = field(default_factory=dict)
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
                env={**os.environ, **OFFLINE},
            )
        self.versions: Mapping[str, str] = self._hear()["ready"]

    def ask(self, measure: str) -> Repeat:
        """One repeat.

        Raises:
            Skipped: where the arm does not measure that.
            ArmFailed: where it has ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"measure": measure}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None
        heard = self._hear()
        if "skipped" in heard:
            raise Skipped(heard["skipped"])
        return Repeat(seconds=heard["seconds"], tokens=heard["tokens"])

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
