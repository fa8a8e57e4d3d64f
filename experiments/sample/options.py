"""The sample's own arguments: what is asked, and short names for three keys of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches

from hydra.core.override_parser.types import Quote, QuotedString

from experiments.schema import Root

SHORT = {
    "model": ("policy.pretrained={}", "policy.chat_template=null"),
    "temperature": ("rollout.sampling.temperature={}",),
    "max_tokens": ("rollout.sampling.max_tokens={}",),
}
"""Short name → the overrides that it stands for. A model brings its own chat template, where it has one."""
ALIKE = 0.8
"""How like one of the names a word must be to be a mistyped one."""
EXAMPLE = "prompt='numbers=3,5,8 target=23'"
MOST_DIGITS = 6
"""Of a number that is typed."""
OF_A_PROBLEM = ("numbers", "target")
"""They stand within the prompt."""


class SampleError(ValueError):
    """One sentence for the person who asked."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked, and what it is judged by. Raises SampleError for a number of completions that is none."""

    prompt: str | None = None
    """``numbers=3,5,8 target=23``, or any text; None: a validation problem of the task."""
    answer: str | None = None
    """What a text asks for; None: nobody judges it."""
    critic: str | None = None
    """Folder of a trained critic, of its stage, or of a run that trained one."""
    n: str = "1"
    """Completions of the problem."""

    def __post_init__(self) -> None:
        if not (self.n.isascii() and self.n.isdecimal() and len(self.n) <= MOST_DIGITS and int(self.n) >= 1):
            raise SampleError(f"n={self.n}: it takes a whole number of at least 1")


def parsed(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The sample's own arguments, and the overrides, of which later ones win: short names come first.

    Raises:
        SampleError: for a mistyped name, a problem without its quotes, or a number of completions that is none.
    """
    own, keys = [field.name for field in fields(Options)], [field.name for field in fields(Root)]
    given: dict[str, str] = {}
    short: list[str] = []
    left: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name in own:
            given |= {name: value} if value else {}
        elif equals and name in SHORT:
            short += [override.format(_quoted(name, value)) for override in SHORT[name]] if value else []
        elif name in OF_A_PROBLEM:
            raise SampleError(f"{argument}: a problem is one word, {EXAMPLE}")
        elif name not in keys and (near := get_close_matches(name, [*own, *SHORT], n=1, cutoff=ALIKE)):
            raise SampleError(f"{name}: no such key; did you mean {near[0]!r}?")
        else:
            left.append(argument)
    return Options(**given), [*short, *left]


def _quoted(name: str, value: str) -> str:
    """A model may have any name, spaces and commas in it too."""
    return QuotedString(text=value, quote=Quote.single).with_quotes() if name == "model" else value
