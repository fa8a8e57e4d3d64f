"""An arm's side of the conversation: requests in, seconds out, one JSON object a line. Standard library only.

    benchmark → arm    {"measure": "step"}
    arm → benchmark    {"seconds": {"generation": 1.5, "update": 0.7, "whole_step": 2.2}, "tokens": {…}}
                       {"skipped": "one sentence"}

The first line an arm says is ``{"ready": {library: version}}``. It ends where its input ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

STEP = "step"
"""The request for a whole GRPO step; every other one is answered without a step."""


class Conversation:
    """Speaks over the standard streams; what libraries print goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def ready(self, **versions: str) -> None:
        self._say(ready=versions)

    def answer(self, seconds: Mapping[str, float], tokens: Mapping[str, Any] | None = None) -> None:
        """Seconds by measure; ``tokens`` says what work that was."""
        self._say(seconds=dict(seconds), tokens=dict(tokens or {}))

    def until_step(self, direct: Mapping[str, Callable[[], Mapping[str, float] | str]]) -> None:
        """Answer requests by the functions of ``direct``, a sentence being a reason to skip; return when a step is due.

        Raises:
            SystemExit: where the benchmark has no more requests.
        """
        for measure in self._requests():
            if measure == STEP:
                return
            found = direct[measure]() if measure in direct else f"this arm does not measure {measure}"
            if isinstance(found, str):
                self._say(skipped=found)
            else:
                self.answer(found)
        raise SystemExit(0)

    def _requests(self) -> Iterator[str]:
        for line in iter(sys.stdin.readline, ""):
            yield str(json.loads(line)["measure"])

    def _say(self, **content: Any) -> None:
        print(json.dumps(content), file=self._out, flush=True)


def read_work() -> dict[str, Any]:
    """The work of this arm: the JSON file named by the first argument."""
    with open(sys.argv[1], encoding="utf-8") as file:
        return json.load(file)
