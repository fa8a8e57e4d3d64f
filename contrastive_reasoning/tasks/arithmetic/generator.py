"""Seeded stories, and perturbed ones: a draw is a function of (seed, split, index), a situation is in one split alone.

Perturbed stories follow MATH-Perturb (arXiv:2502.06453): the same plan on other words, or another plan. A simple
variant keeps the structure: other numbers, one of them at least in no training story, other names and another thing,
also new. A hard variant keeps names, numbers and nearly all words, but another question is asked, one word is replaced
by one that does something else, or one thing more happens: its plan and its answer are others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from contrastive_reasoning.tasks import base
from contrastive_reasoning.tasks.arithmetic.equations import same_plan
from contrastive_reasoning.tasks.arithmetic.story import (
    CHOICES,
    NAMES,
    NEW_NAMES,
    NEW_THINGS,
    THINGS,
    WORDS,
    Clause,
    Form,
    Meaning,
    Opening,
    PlanStep,
    Story,
    plan_of,
    true_meanings,
    words_of,
)
from contrastive_reasoning.tasks.base import Split

_ATTEMPTS = 100_000
"""Attempts at one draw."""
_VARIANTS = 400
"""Attempts at one perturbation of one story."""
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
    """Draws stories whose plan has a number of equations within ``steps``; ranges are [lowest, highest]."""

    steps: Sequence[int]
    """Fewest and most equations of a plan."""
    clauses: Sequence[int]
    """Fewest and most things that happen, those of no consequence included."""
    number_range: Sequence[int]
    new_numbers: Sequence[int]
    """Numbers of the range that stand in no training story."""
    limit: int
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
            names=_pair(rng, NAMES),
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
        clauses = tuple(
            [
                replace(clause, number=rng.choice(small if WORDS[clause.word].form == "scale" else every))
                for clause in story.clauses
            ]
        )
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


def _pair(rng: random.Random, names: Sequence[str]) -> tuple[str, str]:
    first, second = rng.sample(names, 2)
    return first, second


def split_of(story: Story) -> Split:
    """The split of a situation, whatever the names and the thing, with all its questions."""
    return base.split_of(story.situation)


def draw(space: StorySpace, *, seed: int, split: Split, index: int) -> Story:
    """Draw number ``index`` of a split, a story with a true plan. Two indices may draw the same one.

    Raises:
        ValueError: if a hundred thousand attempts find nothing.
    """
    rng = random.Random(f"arithmetic/{seed}/{split}/{index}")
    for _ in range(_ATTEMPTS):
        story = space.sample(rng)
        if split_of(story) == split and space.true_plan(story):
            return story
    raise ValueError(f"{space} holds no {split} story that {_ATTEMPTS} attempts would find")


def draw_distinct(space: StorySpace, *, seed: int, split: Split) -> Iterator[Story]:
    """The draws 0, 1, 2, … of a split without those that repeat a key; a ValueError when there are no more."""
    draws = (draw(space, seed=seed, split=split, index=index) for index in count())
    return base.distinct(draws, lambda story: story.key, space=space, what=f"{split} stories")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A perturbed story, what was changed, and in which story."""

    story: Story
    change: str
    base: Story


def draw_perturbed(space: StorySpace, *, seed: int, kind: str) -> Iterator[Variant]:
    """A variant of each test story in turn, itself in the test split, none twice; a story without one is passed over.

    Args:
        space: what the test stories are drawn from.
        seed: of the test stories and of their variants.
        kind: ``perturb_simple`` or ``perturb_hard``.
    """
    seen: set[str] = set()
    for index, story in enumerate(draw_distinct(space, seed=seed, split="test")):
        rng = random.Random(f"arithmetic/{seed}/{kind}/{index}")
        variant = _variant(space, story, rng, kind=kind, first_turn=index)
        if variant is not None and variant.story.key not in seen:
            seen.add(variant.story.key)
            yield variant


def _variant(space: StorySpace, story: Story, rng: random.Random, *, kind: str, first_turn: int) -> Variant | None:
    for attempt in range(_VARIANTS):
        if kind == "perturb_simple":
            numbered = space.renumbered(story, rng, new=True)
            other = replace(numbered, names=_pair(rng, NEW_NAMES), thing=rng.choice(NEW_THINGS))
            change, accepts = "numbers and names", _is_simple
        else:  # question, operation and step in turn
            change, make = _CHANGES[(first_turn + 3 * attempt // _VARIANTS) % len(_CHANGES)]
            other, accepts = make(space, story, rng), _is_hard
        if split_of(other) == "test" and accepts(space, story, other):
            return Variant(story=other, change=change, base=story)
    return None


def _is_simple(space: StorySpace, story: Story, other: Story) -> bool:
    """Whether the same plan can be carried out on the other's numbers, some of which are new."""
    is_new = not space.new_numbers or any(number in space.new_numbers for number in other.numbers)
    return is_new and other.key != story.key and space.true_plan(other) is not None


def _is_hard(space: StorySpace, story: Story, other: Story) -> bool:
    """Whether both plan and answer are others; the plan may be one equation longer than the space's."""
    before, after = (plan_of(one, true_meanings(one), limit=space.limit) for one in (story, other))
    if not before or not after or not space.steps[0] <= len(after) <= space.steps[1] + 1:
        return False
    equations = [[step.equation for step in plan] for plan in (before, after)]
    return before[-1].equation.result != after[-1].equation.result and not same_plan(*equations)


def _another_question(space: StorySpace, story: Story, rng: random.Random) -> Story:
    asked: list[int | str] = [0]
    if story.opening != "alone":
        asked += [1, *words_of("asked", taught=True), *words_of("asked", taught=False)]
    return replace(story, asked=rng.choice(asked))


def _another_operation(space: StorySpace, story: Story, rng: random.Random) -> Story:
    place = rng.randrange(len(story.clauses))
    clause = story.clauses[place]
    changed = replace(clause, word=space.word(rng, WORDS[clause.word].form))
    return replace(story, clauses=(*story.clauses[:place], changed, *story.clauses[place + 1 :]))


def _one_more_step(space: StorySpace, story: Story, rng: random.Random) -> Story:
    person = 0 if story.opening == "alone" else rng.randrange(2)
    word = space.word(rng, "solo" if story.opening == "alone" else rng.choice(("solo", "transfer")))
    clause = Clause(word=word, person=person, number=rng.choice(space.numbers(new=False)))
    place = rng.randint(0, len(story.clauses))
    return replace(story, clauses=(*story.clauses[:place], clause, *story.clauses[place:]))


_CHANGES = (("question", _another_question), ("operation", _another_operation), ("step", _one_more_step))
