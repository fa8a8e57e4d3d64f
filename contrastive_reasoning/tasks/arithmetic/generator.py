"""Seeded stories: a draw is a function of (seed, split, index), a situation stands in one split alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from contrastive_reasoning.tasks.arithmetic.perturb import is_hard, is_simple, propose_hard, propose_simple
from contrastive_reasoning.tasks.arithmetic.space import StorySpace
from contrastive_reasoning.tasks.arithmetic.story import Story
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
            other, change, accepts = propose_simple(space, story, rng), "numbers and names", is_simple
        else:
            other, change = propose_hard(space, story, rng, turn=first_turn + 3 * attempt // _VARIANTS)
            accepts = is_hard
        if split_of(other) == "test" and accepts(space, story, other):
            return Variant(story=other, change=change, base=story)
    return None
