"""Hostile completions by seed: a family, a mark, a text, and what is right about it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from contrastive_reasoning.tasks.arithmetic import Equation
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import CountdownProblem
from tests.hostile import breaking, fooling
from tests.hostile.drawn import Drawn, Family, Mark

NUMBERS, TARGET = (21, 16, 17, 26), 46
MOVES = ("21 + 16 = 37", "37 - 17 = 20", "26 + 20 = 46")
GOLDS = ("7919", r"\frac{355}{113}", r"3+\sqrt{47}", "x^2-3x+11", "(4,-9)", r"\frac{\pi}{7}", "[3,11)", "Tuesday")
"""A number, a fraction, formulas, a pair, an interval, a word: every kind of comparison is reached."""
ASKED = Problem(id="asked", prompt="What percent of them is it?", answer="")
"""Of the answers: golds are read in the measure that is asked for, too."""
LETTER, STORY = "C", 83
STYLES = ("longproc", "annotated", "direct")

COUNTDOWN = {style: CountdownProblem(NUMBERS, TARGET, style=style) for style in STYLES}
STORY_PROBLEM = Problem(
    id="story", prompt="", answer=str(STORY), fields={"plan": (Equation(90, "-", 7, 83), Equation(83, "/", 1, 83))}
)

FAMILIES: dict[str, Family] = {
    family.__name__: family
    for family in (
        breaking.code,
        breaking.code_in_mathematics,
        breaking.dunders,
        breaking.powers,
        breaking.factorials,
        breaking.nesting,
        breaking.controls,
        breaking.long_numbers,
        breaking.latex_bombs,
        breaking.algebra_traps,
        breaking.repeats,
        breaking.broken_text,
        breaking.templates,
        fooling.bidirectional,
        fooling.tags,
        fooling.echo,
        fooling.hedging,
        fooling.measures,
        fooling.forbidden_moves,
        fooling.right_behind_noise,
    )
}


class Hostile(NamedTuple):
    family: str
    text: str
    gold: str
    """Of the answer that is asked for."""
    right: frozenset[str]
    """The judges for which it is a right completion."""


def completions(count: int, *, seed: int) -> Iterator[Hostile]:
    """``count`` texts, family by family in turn; each is a function of the seed and its place."""
    names = list(FAMILIES)
    for place in range(count):
        draw = Random(f"{seed}:{place}")
        family = names[place % len(names)]
        mark = Mark(gold=draw.choice(GOLDS), letter=LETTER, story=str(STORY), target=str(TARGET), moves=MOVES)
        drawn = FAMILIES[family](draw, mark)
        text, right, gold = drawn if isinstance(drawn, Drawn) else Drawn(drawn)
        yield Hostile(family, text, gold or mark.gold, right)
