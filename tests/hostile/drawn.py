"""What every family of hostile texts draws from: the mark, payloads that show that they were run, frames for both."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.hostile.watch import CANARY

MEGABYTE = 1_000_000
SIZES = (1, 10, 100, 1_000, 10_000, 100_000)


class Mark(NamedTuple):
    """What is asked of the judges; the numbers of Countdown are those of ``kit.py``."""

    gold: str
    """The answer's gold, in LaTeX."""
    letter: str
    story: str
    """The number that the story's answer is."""
    target: str
    moves: tuple[str, ...]
    """That reach the target."""


class Drawn(NamedTuple):
    text: str
    right: frozenset[str] = frozenset()
    """The judges for which the text is a right completion."""
    gold: str | None = None
    """In place of the mark's."""


Family = Callable[[Random, Mark], str | Drawn]

PAYLOADS = (
    f"__import__('{CANARY}')",
    f"open('{CANARY}', 'w').write('here')",
    f"__import__('os').system('touch {CANARY}')",
    f"exec(\"open('{CANARY}', 'w')\")",
    f"eval(\"__import__('os').mkdir('{CANARY}')\")",
    f"[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0](['touch', '{CANARY}'])",
    f"().__class__.__mro__[1].__subclasses__()[0].__init__.__globals__['{CANARY}'] if 0 else open('{CANARY}', 'x')",
    f"__import__('subprocess').run(['touch', '{CANARY}'])",
    "__import__('socket').create_connection(('127.0.0.1', 9), 1)",
    f"(lambda: open('{CANARY}', 'a'))()",
    f"__import__('pathlib').Path('{CANARY}').touch()",
    f"__import__('importlib').import_module('{CANARY}')",
    f"globals()['__builtins__']['open']('{CANARY}', 'w') if isinstance(__builtins__, dict) else open('{CANARY}', 'w')",
    f"type('X', (), {{'__del__': lambda s: open('{CANARY}', 'w')}})()",
    f"__import__('pickle').loads(b\"cos\\nsystem\\n(S'touch {CANARY}'\\ntR.\")",
)
"""Python expressions that leave the canary or reach out where somebody evaluates them; ``test_watch`` does."""

FRAMES = (
    "{}",
    r"\boxed{{{}}}",
    "<Solution>\n{}\n</Solution>",
    "<Solution>\n{0} = 37\n{0} = 20\n{0} = 46\n</Solution>",
    "21 + 16 = {}\n",
    "21+16={0};37-17={0};26+20={0}",
    "# Search Procedure\n|- Try {}",
    "|- Try 21 + 16 = 37. Current number set: [{}]\n|- Try {}. Evaluate 46\n",
    "The answer is {}.",
    "#### {}",
    "Answer: ({})",
    r"$\boxed{{x = {}}}$",
    r"\boxed{{\text{{{}}}}}",
    r"\boxed{{\left({}, {}\right)}}",
    "</think>{}",
)
"""Where each parser looks."""


def framed(draw: Random, text: str) -> str:
    frame = draw.choice(FRAMES)
    return frame.format(*[text] * frame.count("{}")) if "{}" in frame else frame.format(text)
