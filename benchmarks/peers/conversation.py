"""The parts shared by all arms: the protocol with the benchmark, a clock, peak memory and completions of given lengths.

An arm reads requests and writes figures, one JSON object per line:

    benchmark → arm    {"measure": "step"}
    arm → benchmark    {"figures": {"generation": 1.5, "update": 0.7, "whole_step": 2.2}, "tokens": {…}}
                       {"skipped": "one sentence"}

The first line of an arm is ``{"ready": {library: version}}``. It ends when its input ends.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

STEP = "step"
"""The request for a whole GRPO step. All other requests are answered without a step."""


class Conversation:
    """Exchanges messages over standard input and output. Output of libraries is redirected to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # not sys.stdout alone: native code writes to the descriptor

    def ready(self, **versions: str) -> None:
        self._write(ready=versions)

    def answer(self, figures: Mapping[str, float], tokens: Mapping[str, Any] | None = None) -> None:
        """Sends measure → seconds or GiB, and the token counts of that work."""
        self._write(figures=dict(figures), tokens=dict(tokens or {}))

    def until_step(self, direct: Mapping[str, Callable[[], Mapping[str, float] | str]]) -> None:
        """Answers requests with the functions of ``direct`` until a step is requested.

        A function returns figures or a sentence, the reason to skip the measure.

        Raises:
            SystemExit: if the benchmark has no more requests.
        """
        for line in iter(sys.stdin.readline, ""):
            measure = json.loads(line)["measure"]
            if measure == STEP:
                return
            found = direct[measure]() if measure in direct else f"this arm does not measure {measure}"
            if isinstance(found, str):
                self._write(skipped=found)
            else:
                self.answer(found)
        raise SystemExit(0)

    def _write(self, **content: Any) -> None:
        print(json.dumps(content), file=self._out, flush=True)


def read_work() -> dict[str, Any]:
    """Reads the work of this arm from the JSON file that is the first argument."""
    with open(sys.argv[1], encoding="utf-8") as file:
        return json.load(file)


def now() -> float:
    """Returns a time in seconds, after waiting for the current GPU, whose calls return before their work is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return perf_counter()


def time_call(function: Callable[[], object]) -> float:
    """Returns the seconds of one call."""
    start = now()
    function()
    return now() - start


def peak_memory() -> float:
    """Returns the peak memory of this process in GiB; if it uses a GPU, the peak of its tensors there."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**30
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kibibytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def processors(work: dict[str, Any], *, prompt_tokens: int, end: int) -> list[GivenLengths]:
    """Returns the logits processors that give completions the lengths of this work; none if lengths are not given."""
    if work["lengths"] is None:
        return []
    return [GivenLengths(work["lengths"], prompt_tokens=prompt_tokens, end=end, longest=work["max_tokens"])]


class GivenLengths:
    """A logits processor that ends row i at token number ``lengths[i]``, by allowing the end token only there.

    A row of the maximum length ``longest`` gets no end token; ``generate`` cuts it there.
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
