"""What every arm shares: its side of the conversation, a clock, its memory, and completions of given lengths.

Requests come in and figures go out, one JSON object a line:

    benchmark → arm    {"measure": "step"}
    arm → benchmark    {"figures": {"generation": 1.5, "update": 0.7, "whole_step": 2.2}, "tokens": {…}}
                       {"skipped": "one sentence"}

The first line an arm says is ``{"ready": {library: version}}``. It ends where its input ends.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

STEP = "step"
"""The request for a whole GRPO step; every other one is answered without a step."""


class Conversation:
    """Speaks over the standard streams; what libraries print goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def ready(self, **versions: str) -> None:
        self._say(ready=versions)

    def answer(self, figures: Mapping[str, float], tokens: Mapping[str, Any] | None = None) -> None:
        """Seconds or GiB by measure; ``tokens`` says what work that was."""
        self._say(figures=dict(figures), tokens=dict(tokens or {}))

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


def now() -> float:
    """Seconds on a clock, once the work of the current GPU is done: a GPU answers a call before its work is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return perf_counter()


def timed(function: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = now()
    function()
    return now() - start


def peak_memory() -> float:
    """GiB: the most that this process has held, on a GPU the most that its tensors have taken there."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**30
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def processors(work: dict[str, Any], *, prompt_tokens: int, end: int) -> list[GivenLengths]:
    """What ``generate`` needs for the lengths of this work; nothing where no completion ends by itself."""
    if work["lengths"] is None:
        return []
    return [GivenLengths(work["lengths"], prompt_tokens=prompt_tokens, end=end, longest=work["max_tokens"])]


class GivenLengths:
    """A logits processor by which row i ends with its token number ``lengths[i]``: the end token is allowed only there.

    A row whose length is that of the longest completion allowed is cut there instead, without an end token.
    """

    def __init__(self, lengths: Sequence[int], *, prompt_tokens: int, end: int, longest: int) -> None:
        self.lengths = torch.tensor(lengths)
        self.prompt_tokens, self.end, self.longest = prompt_tokens, end, longest

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        place = input_ids.shape[1] - self.prompt_tokens + 1
        ends = (self.lengths == place) & (self.lengths < self.longest)
        scores[:, self.end] = float("-inf")
        scores[ends] = float("-inf")
        scores[ends, self.end] = 0.0
        return scores
