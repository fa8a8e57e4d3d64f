"""Perturbed stories, after MATH-Perturb (arXiv:2502.06453): the same plan on other words, or another plan.

A simple variant keeps the structure: other numbers, one of them at least in no training story, other names and another
thing, also new. A hard variant keeps names, numbers and nearly all words, but another question is asked, one word is
replaced by one that does something else, or one thing more happens: its plan and its answer are others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from contrastive_reasoning.tasks.arithmetic.equations import same_plan
from contrastive_reasoning.tasks.arithmetic.space import StorySpace, renamed
from contrastive_reasoning.tasks.arithmetic.story import Clause, Story, plan_of, true_meanings
from contrastive_reasoning.tasks.arithmetic.words import WORDS, words_of


def propose_simple(space: StorySpace, story: Story, rng: random.Random) -> Story:
    """The story on other numbers, names and another thing."""
    return renamed(space.renumbered(story, rng, new=True), rng)


def is_simple(space: StorySpace, story: Story, other: Story) -> bool:
    """Whether the same plan can be carried out on the other's numbers, some of which are new."""
    is_new = not space.new_numbers or any(number in space.new_numbers for number in other.numbers)
    return is_new and other.key != story.key and space.true_plan(other) is not None


def propose_hard(space: StorySpace, story: Story, rng: random.Random, *, turn: int) -> tuple[Story, str]:
    """The story with a small change, and which one: question, operation and step in turn."""
    change, make = _CHANGES[turn % len(_CHANGES)]
    return make(space, story, rng), change


def is_hard(space: StorySpace, story: Story, other: Story) -> bool:
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


_CHANGES: tuple[tuple[str, Callable[[StorySpace, Story, random.Random], Story]], ...] = (
    ("question", _another_question),
    ("operation", _another_operation),
    ("step", _one_more_step),
)
