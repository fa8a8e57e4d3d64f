"""Generates stories and perturbed stories: a draw is a function of (seed, split, index), a situation is in one split.

Perturbed stories follow MATH-Perturb (arXiv:2502.06453): the same plan with other words, or another plan. A simple
variant keeps the structure and has other numbers, at least one of them in no training story; its names and its thing
are new too. A hard variant keeps names, numbers and nearly all words. It asks another question, replaces one word by
one with another effect, or adds one event, so that both its plan and its answer differ.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from contrastive_reasoning.ranges import range_from, within
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
from contrastive_reasoning.tasks.base import Split, make_tuples

_ATTEMPTS = 100_000
"""Maximum number of attempts for one draw."""
_VARIANTS = 400
"""Maximum number of attempts to perturb one story."""
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
    """Minimum and maximum number of equations in a plan."""
    clauses: Sequence[int]
    """Minimum and maximum number of events, including those without an effect."""
    number_range: Sequence[int]
    new_numbers: Sequence[int]
    """Numbers of the range that occur in no training story."""
    limit: int
    taught_share: float
    """Probability that a word is a taught one."""
    first_share: float
    """Probability that the question is about the first person, given that it is about one of two persons."""
    both_share: float
    """Probability that the question is about both persons, given that there are two."""

    def __post_init__(self) -> None:
        make_tuples(self, "steps", "clauses", "number_range", "new_numbers")
        range_from(1, steps=self.steps, clauses=self.clauses)
        range_from(2, number_range=self.number_range)
        if not set(self.new_numbers) < set(range(self.number_range[0], self.number_range[1] + 1)):
            raise ValueError(
                f"new_numbers must lie in {list(self.number_range)} and leave some, got {self.new_numbers}"
            )
        if self.limit < self.number_range[1]:
            raise ValueError(f"limit must be at least the highest number, {self.number_range[1]}, got {self.limit}")
        within("[0, 1]", taught_share=self.taught_share, first_share=self.first_share, both_share=self.both_share)

    def numbers(self, *, new: bool) -> tuple[int, ...]:
        """The numbers that a story may contain; the new ones only if ``new`` is true."""
        every = range(self.number_range[0], self.number_range[1] + 1)
        return tuple([number for number in every if new or number not in self.new_numbers])

    def sample(self, rng: random.Random) -> Story:
        """Draws a story, which may have no answer."""
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
        """The story with newly drawn numbers, otherwise unchanged."""
        every = self.numbers(new=new)
        small = [number for number in every if number <= max(_SMALL, every[0])]
        second = 0 if story.opening == "alone" else rng.choice(small if story.opening == "times" else every)
        numbers = [rng.choice(small if WORDS[clause.word].form == "scale" else every) for clause in story.clauses]
        clauses = [replace(clause, number=number) for clause, number in zip(story.clauses, numbers, strict=True)]
        return replace(story, start=rng.choice(every), second=second, clauses=tuple(clauses))

    def word(self, rng: random.Random, form: Form) -> str:
        """Draws a word of a form, taught or learnt."""
        taught = rng.random() < self.taught_share or not words_of(form, taught=False)
        return rng.choice(words_of(form, taught=taught))

    def plan(self, story: Story, meanings: Mapping[str, Meaning]) -> tuple[PlanStep, ...] | None:
        """The story's plan with these meanings if its length is allowed, else None."""
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
    """The word meanings that a warm start shows: the true one for a taught word, a random one for a learnt word."""
    return {
        text: WORDS[text].meaning if WORDS[text].taught else rng.choice(CHOICES[WORDS[text].form])
        for text in dict.fromkeys(story.words)
    }


def _pair(rng: random.Random, names: Sequence[str]) -> tuple[str, str]:
    first, second = rng.sample(names, 2)
    return first, second


def split_of(story: Story) -> Split:
    """The split of a story's situation: the same for all names, things and questions."""
    return base.split_of(story.situation)


def draw(space: StorySpace, *, seed: int, split: Split, index: int) -> Story:
    """Returns draw ``index`` of a split, a story with a true plan. Two indices may give the same story.

    Raises:
        ValueError: if a hundred thousand attempts find no story.
    """
    rng = random.Random(f"arithmetic/{seed}/{split}/{index}")
    for _ in range(_ATTEMPTS):
        story = space.sample(rng)
        if split_of(story) == split and space.true_plan(story):
            return story
    raise ValueError(f"{space} holds no {split} story that {_ATTEMPTS} attempts would find")


def draw_distinct(space: StorySpace, *, seed: int, split: Split) -> Iterator[Story]:
    """Yields the draws 0, 1, 2, … of a split without repeated keys; raises a ValueError when there are no more."""
    draws = (draw(space, seed=seed, split=split, index=index) for index in count())
    return base.distinct(draws, lambda story: story.key, space=space, what=f"{split} stories")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A perturbed story, the kind of change, and the story that it is made from."""

    story: Story
    change: str
    base: Story


def draw_perturbed(space: StorySpace, *, seed: int, kind: str) -> Iterator[Variant]:
    """Yields a variant of each test story in turn. Variants are in the test split and distinct.

    A test story without a variant is skipped. ``kind`` is ``perturb_simple`` or ``perturb_hard``.
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
        else:  # question, operation and step in turn, each for a third of the attempts
            change, make = _CHANGES[(first_turn + 3 * attempt // _VARIANTS) % len(_CHANGES)]
            other, accepts = make(space, story, rng), _is_hard
        if split_of(other) == "test" and accepts(space, story, other):
            return Variant(story=other, change=change, base=story)
    return None


def _is_simple(space: StorySpace, story: Story, other: Story) -> bool:
    """Whether ``other`` has a true plan with its own numbers, at least one of which is new, and another key."""
    is_new = not space.new_numbers or any(number in space.new_numbers for number in other.numbers)
    return is_new and other.key != story.key and space.true_plan(other) is not None


def _is_hard(space: StorySpace, story: Story, other: Story) -> bool:
    """Whether both plan and answer differ; the plan may be one equation longer than ``space`` allows."""
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
