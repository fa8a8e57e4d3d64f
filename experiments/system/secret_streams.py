"""What a run says, with the secrets of the environment hidden in it.

A part that fails may have its token in what it raises, and that is told in many places: by a warning, a traceback of
Hydra's, a sentence of ours, the log of a job. All of them end in the two streams of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from experiments.system.secret_values import SHORTEST, concealed


class Concealing:
    """Hides each secret that is written to a stream of text in one piece; in all else it is that stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(concealed(text) if len(text) >= SHORTEST else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def conceal_output() -> None:
    """From now on this process prints no secret. Not what writes to the descriptors past Python."""
    streams: Any = sys
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), Concealing | None):
            setattr(streams, name, Concealing(stream))
