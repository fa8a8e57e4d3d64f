"""Seeded stories, and perturbed ones: a draw is a function of (seed, split, index), a situation is in one split alone.

Perturbed stories follow MATH-Perturb (arXiv:2502.06453): the same plan on other words, or another plan. A simple
variant keeps the structure: other numbers, one of them at least in no training story, other names and another thing,
also new. A hard variant keeps names, numbers and nearly all words, but another question is asked, one word is replaced
by one that does something else, or one thing more happens: its plan and its answer are others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from contrastive_reasoning.tasks.arithmetic.equations import same_plan
from contrastive_reasoning.tasks.arithmetic.space import StorySpace, renamed
from contrastive_reasoning.tasks.arithmetic.story import Clause, Story, plan_of, true_meanings
from contrastive_reasoning.tasks.arithmetic.words import WORDS, words_of
from contrastive_reasoning.tasks.base import Split

_ATTEMPTS = 100_000
"""Attempts at one draw."""
_REPEATS = 1_000
"""Draws in a row that repeat a story before the space counts as exhausted."""
_VARIANTS = 400
"""Attempts at one perturbation of one story."""


def split_of(story: Story) -> Split:
    """The split of a story by a hash of its situation: 80% train, 10% validation, 10% test, whatever is asked.

    The same for every seed and size, and for all names: a situation is in one split with all its questions.
    """
    bucket = int.from_bytes(blake2b(story.situation.encode(), digest_size=8).digest(), "big") % 10
    return ("validation", "test")[bucket] if bucket < 2 else "train"


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
    """The draws 0, 1, 2, … of a split without those that repeat a key: a longer list begins with the shorter one.

    Raises:
        ValueError: when a thousand draws in a row bring nothing new: the space is exhausted.
    """
    seen: set[str] = set()
    repeats = index = 0
    while repeats < _REPEATS:
        story = draw(space, seed=seed, split=split, index=index)
        index += 1
        repeats = repeats + 1 if story.key in seen else 0
        if not repeats:
            seen.add(story.key)
            yield story
    raise ValueError(f"{space} holds only about {len(seen)} distinct {split} stories")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A perturbed story."""

    story: Story
    change: str
    """What was changed."""
    base: Story
    """What it was changed in."""


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
            other, change, accepts = _propose_simple(space, story, rng), "numbers and names", _is_simple
        else:
            other, change = _propose_hard(space, story, rng, turn=first_turn + 3 * attempt // _VARIANTS)
            accepts = _is_hard
        if split_of(other) == "test" and accepts(space, story, other):
            return Variant(story=other, change=change, base=story)
    return None


def _propose_simple(space: StorySpace, story: Story, rng: random.Random) -> Story:
    """The story on other numbers, names and another thing."""
    return renamed(space.renumbered(story, rng, new=True), rng)


def _is_simple(space: StorySpace, story: Story, other: Story) -> bool:
    """Whether the same plan can be carried out on the other's numbers, some of which are new."""
    is_new = not space.new_numbers or any(number in space.new_numbers for number in other.numbers)
    return is_new and other.key != story.key and space.true_plan(other) is not None


def _propose_hard(space: StorySpace, story: Story, rng: random.Random, *, turn: int) -> tuple[Story, str]:
    """The story with a small change, and which one: question, operation and step in turn."""
    change, make = _CHANGES[turn % len(_CHANGES)]
    return make(space, story, rng), change


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


_CHANGES: tuple[tuple[str, Callable[[StorySpace, Story, random.Random], Story]], ...] = (
    ("question", _another_question),
    ("operation", _another_operation),
    ("step", _one_more_step),
)
