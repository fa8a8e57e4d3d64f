"""The plan's own arguments, which are no keys of an experiment: gpus=8 gpu_memory=80 mfu=0.4 tflops=989 …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches

H100 = 989.0
"""10¹² operations a second in bfloat16, dense, by its data sheet."""
WHOLE = ("gpus", "prompt_tokens", "completion_tokens")

ALIKE = 0.8
"""How like one of the names a word must be to be a mistyped one; no root key of an experiment is so like them."""


class PlanError(ValueError):
    """One sentence for the person who asked."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the experiment itself does not say. Raises PlanError for a number that is out of range."""

    gpus: int | None = None
    """Devices; None: what the trainer says."""
    gpu_memory: float = 80.0
    """GiB of each."""
    mfu: float = 0.4
    """Share of the peak that a whole step uses: ``train/throughput/step_utilisation`` of a run that was made."""
    tflops: float | None = None
    """Peak of each device, 10¹² operations a second; None: an H100's on GPUs, and no hours on a CPU."""
    prompt_tokens: int | None = None
    """Of a prompt; None: the longest that the budget allows."""
    completion_tokens: int | None = None
    """Of a completion on average, for work and hours; None: the longest. Memory is planned for the longest."""

    def __post_init__(self) -> None:
        for name in WHOLE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError(f"{name} must be at least 1, got {value}")
        for name in ("gpu_memory", "tflops"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # nan is not, either
                raise PlanError(f"{name} must be positive, got {value}")
        if not 0 < self.mfu <= 1:
            raise PlanError(f"mfu must lie in (0, 1], got {self.mfu}")


def parsed(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The plan's own arguments, and the overrides that are left for Hydra.

    Raises:
        PlanError: for a value that is no number or out of range, or a mistyped name.
    """
    names = [field.name for field in fields(Options)]
    own: dict[str, float] = {}
    left: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name in names:
            own[name] = _number(name, value)
        elif near := get_close_matches(name, names, n=1, cutoff=ALIKE):
            raise PlanError(f"{name}: no such key; did you mean {near[0]!r}?")
        else:
            left.append(argument)
    return Options(**own), left  # pyright: ignore[reportArgumentType]


def _number(name: str, value: str) -> float:
    try:
        return int(value) if name in WHOLE else float(value)
    except ValueError as error:
        kind = "a whole number" if name in WHOLE else "a number"
        raise PlanError(f"{name}={value}: it takes {kind}") from error
