"""The sample's own arguments, which are no keys of an experiment: model=… prompt=… critic=… n=3 …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches

from experiments.schema import Root

ALIKE = 0.8
"""How like one of the names a word must be to be a mistyped one."""
EXAMPLE = "prompt='numbers=3,5,8 target=23'"
OF_A_PROBLEM = ("numbers", "target")
"""They stand within the prompt."""


class SampleError(ValueError):
    """One sentence for the person who asked."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to write and what to judge it by. Raises SampleError for a value out of range."""

    model: str | None = None
    """Hub name, folder of a model, stage or run, or ``embedded:NAME``; None: the policy of the configuration."""
    prompt: str | None = None
    """``numbers=3,5,8 target=23``, or any text; None: a validation problem of the task."""
    answer: str | None = None
    """What a text asks for; None: nobody judges it."""
    critic: str | None = None
    """Folder of a trained critic, of its stage, or of a run that trained one."""
    n: int = 1
    """Completions of the problem."""
    temperature: float | None = None
    """0 takes the likeliest token; None: the configuration's."""
    max_tokens: int | None = None
    """Of a completion at most; None: the configuration's."""

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SampleError(f"n must be at least 1, got {self.n}")


def parsed(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The sample's own arguments, and the overrides that are left for Hydra.

    Raises:
        SampleError: for a value that is no number or out of range, a mistyped name, or a problem without its quotes.
    """
    names, keys = [field.name for field in fields(Options)], [field.name for field in fields(Root)]
    own: dict[str, str] = {}
    left: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name in names:
            own[name] = value
        elif name in OF_A_PROBLEM:
            raise SampleError(f"{argument}: a problem is one word, {EXAMPLE}")
        elif name not in keys and (near := get_close_matches(name, names, n=1, cutoff=ALIKE)):
            raise SampleError(f"{name}: no such key; did you mean {near[0]!r}?")
        else:
            left.append(argument)
    texts = {name: value for name, value in own.items() if name in ("model", "prompt", "answer", "critic") and value}
    return Options(**texts, **_numbers(own)), left  # pyright: ignore[reportArgumentType]


def _numbers(own: dict[str, str]) -> dict[str, int | float]:
    kinds = {"n": int, "max_tokens": int, "temperature": float}
    words = {int: "a whole number", float: "a number"}
    numbers: dict[str, int | float] = {}
    for name, kind in kinds.items():
        if name in own:
            try:
                numbers[name] = kind(own[name])
            except ValueError as error:
                raise SampleError(f"{name}={own[name]}: it takes {words[kind]}") from error
    return numbers
