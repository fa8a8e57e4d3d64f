"""What stories are drawn from: their words, numbers and lengths."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contrastive_reasoning.tasks.arithmetic.story import Clause, Opening, PlanStep, Story, plan_of, true_meanings
from contrastive_reasoning.tasks.arithmetic.words import (
    CHOICES,
    NAMES,
    NEW_NAMES,
    NEW_THINGS,
    THINGS,
    WORDS,
    Form,
    Meaning,
    words_of,
)

_ALONE = 0.15
"""Share of stories with one person."""
_FORMS: Sequence[Form] = ("solo", "transfer", "scale")
_FORM_WEIGHTS = (0.55, 0.3, 0.15)
_OPENINGS: Sequence[Opening] = ("plain", "more", "fewer", "times")
_OPENING_WEIGHTS = (0.55, 0.15, 0.15, 0.15)
_SMALL = 4
"""The largest number that an amount is multiplied or divided by."""


@dataclass(frozen=True, kw_only=True)
class StorySpace:
    """Draws stories whose plan has a number of equations within ``steps``."""

    steps: Sequence[int]
    """Fewest and most equations of a plan."""
    clauses: Sequence[int]
    """Fewest and most things that happen, those of no consequence included."""
    number_range: Sequence[int]
    """Lowest and highest number in a story, both included."""
    new_numbers: Sequence[int]
    """Numbers of the range that stand in no training story."""
    limit: int
    """The largest amount."""
    taught_share: float
    """How often a word is a taught one."""
    first_share: float
    """How often the first person is asked about, where a person is."""
    both_share: float
    """How often both persons are asked about, where there are two."""

    def __post_init__(self) -> None:
        for name in ("steps", "clauses", "number_range", "new_numbers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name, least in (("steps", 1), ("clauses", 1), ("number_range", 2)):
            bounds = getattr(self, name)
            if len(bounds) != 2 or not least <= bounds[0] <= bounds[1]:
                raise ValueError(
                    f"{name} must be [lowest, highest] with {least} ≤ lowest ≤ highest, got {list(bounds)}"
                )
        if not set(self.new_numbers) < set(range(self.number_range[0], self.number_range[1] + 1)):
            raise ValueError(
                f"new_numbers must lie in {list(self.number_range)} and leave some, got {self.new_numbers}"
            )
        if self.limit < self.number_range[1]:
            raise ValueError(f"limit must be at least the highest number, {self.number_range[1]}, got {self.limit}")
        for name in ("taught_share", "first_share", "both_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")

    def numbers(self, *, new: bool) -> tuple[int, ...]:
        """The numbers that a story may hold; the new ones only where asked for."""
        every = range(self.number_range[0], self.number_range[1] + 1)
        return tuple([number for number in every if new or number not in self.new_numbers])

    def sample(self, rng: random.Random) -> Story:
        """Any story, with an answer or without."""
        two = rng.random() >= _ALONE
        opening: Opening = rng.choices(_OPENINGS, _OPENING_WEIGHTS)[0] if two else "alone"
        skeleton = Story(
            names=pair(rng, NAMES),
            thing=rng.choice(THINGS),
            start=0,
            opening=opening,
            second=0,
            clauses=tuple([self._clause(rng, two=two) for _ in range(rng.randint(*self.clauses))]),
            asked=self._asked(rng, two=two),
        )
        return self.renumbered(skeleton, rng, new=False)

    def renumbered(self, story: Story, rng: random.Random, *, new: bool) -> Story:
        """The story with other numbers, the rest as it is."""
        every = self.numbers(new=new)
        small = [number for number in every if number <= max(_SMALL, every[0])]
        second = 0 if story.opening == "alone" else rng.choice(small if story.opening == "times" else every)
        clauses = tuple([_numbered(clause, rng, every, small) for clause in story.clauses])
        return replace(story, start=rng.choice(every), second=second, clauses=clauses)

    def word(self, rng: random.Random, form: Form) -> str:
        """A word of a form, taught or learnt."""
        taught = rng.random() < self.taught_share or not words_of(form, taught=False)
        return rng.choice(words_of(form, taught=taught))

    def plan(self, story: Story, meanings: Mapping[str, Meaning]) -> tuple[PlanStep, ...] | None:
        """The story's plan with these meanings, if it is of an allowed length; else None."""
        plan = plan_of(story, meanings, limit=self.limit)
        return plan if plan and self.steps[0] <= len(plan) <= self.steps[1] else None

    def true_plan(self, story: Story) -> tuple[PlanStep, ...] | None:
        return self.plan(story, true_meanings(story))

    def _clause(self, rng: random.Random, *, two: bool) -> Clause:
        form = rng.choices(_FORMS, _FORM_WEIGHTS)[0]
        form = "solo" if form == "transfer" and not two else form
        return Clause(word=self.word(rng, form), person=int(two and rng.random() < 0.4), number=0)

    def _asked(self, rng: random.Random, *, two: bool) -> int | str:
        if two and rng.random() < self.both_share:
            return self.word(rng, "asked")
        return int(two and rng.random() >= self.first_share)


def shown_meanings(story: Story, rng: random.Random) -> dict[str, Meaning]:
    """What a warm start says that the words mean: of a taught word the truth, of a learnt one a meaning of chance."""
    return {
        text: WORDS[text].meaning if WORDS[text].taught else rng.choice(CHOICES[WORDS[text].form])
        for text in dict.fromkeys(story.words)
    }


def pair(rng: random.Random, names: Sequence[str]) -> tuple[str, str]:
    """Two different names."""
    first, second = rng.sample(names, 2)
    return first, second


def renamed(story: Story, rng: random.Random) -> Story:
    """The story with names and a thing that no training story has."""
    return replace(story, names=pair(rng, NEW_NAMES), thing=rng.choice(NEW_THINGS))


def _numbered(clause: Clause, rng: random.Random, every: Sequence[int], small: Sequence[int]) -> Clause:
    numbers = small if WORDS[clause.word].form == "scale" else every
    return Clause(word=clause.word, person=clause.person, number=rng.choice(numbers))
