"""Stories with solutions for a warm start on arithmetic, the form, and the meaning of only some words.

A taught word is shown with its meaning. A learnt word is shown with a random meaning, drawn anew for every story. The
policy sees the possible effects of such words but never the true effect of this one. A completion is thus correct
arithmetic, but often wrong for the story. Plain sums are mixed with the stories (at first there are only sums). They
cover all numbers, including those that occur in no training story. Held-out problems are never shown: a story of
another split is redrawn, whatever meanings are shown with its words.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from contrastive_reasoning.ranges import within
from contrastive_reasoning.tasks.arithmetic import (
    ArithmeticTask,
    Equation,
    PlanStep,
    prompt_of,
    shown_meanings,
    solution_text,
    split_of,
)
from contrastive_reasoning.tasks.arithmetic.story import NAMES, NEW_NAMES
from contrastive_reasoning.tasks.base import Split
from datamodules.batch_stream import BatchData, Example

CONSONANTS, VOWELS = "bdfghklmnprstvz", "aeiou"


def draw_story(task: ArithmeticTask, split: Split, rng: random.Random, *, made_up: bool) -> Example:
    """Draws a story of ``split`` and its solution, with the meanings that a warm start shows for its words.

    Names and thing are from the lexicon, or made up letter by letter, so that the policy can also read unseen names.
    """
    while True:
        story = task.space.sample(rng)
        if split_of(story) != split:
            continue
        plan = task.space.plan(story, shown_meanings(story, rng))
        if plan is not None:
            if made_up:
                first, second = made_up_name(rng).title(), made_up_name(rng).title()
                story = replace(story, names=(first, second), thing=f"{made_up_name(rng)}s")
            return prompt_of(story, instructed=task.instructed), solution_text(plan)


def made_up_name(rng: random.Random) -> str:
    """Draws three or four pronounceable letters that are not a name of the lexicon."""
    while True:
        name = "".join([rng.choice(letters) for letters in (CONSONANTS, VOWELS, CONSONANTS, VOWELS)])
        name = name[rng.randrange(2) :]
        if name.title() not in (*NAMES, *NEW_NAMES):
            return name


def draw_sum(task: ArithmeticTask, rng: random.Random) -> Example:
    """Draws one operation on an amount and a number of the task's range, as a problem and its solution."""
    numbers = task.space.numbers(new=True)
    while True:
        op, number = rng.choice("++--*/"), rng.choice(numbers)
        amount = rng.randint(1, task.limit // number if op == "*" else task.limit)
        equation = Equation.of(amount, op, number)
        if equation is not None and equation.result <= task.limit:
            return f"What is {amount}{op}{number}?\n", solution_text((PlanStep("sum", equation),))


@dataclass(frozen=True, kw_only=True)
class StoryCorpus:
    """Texts for a tokenizer: prompts and completions of training stories."""

    task: ArithmeticTask
    stories: int
    seed: int

    def __call__(self) -> list[str]:
        rng = random.Random(f"{self.seed}/story corpus")
        return [text for _ in range(self.stories) for text in draw_story(self.task, "train", rng, made_up=False)]


@dataclass(kw_only=True, eq=False, repr=False)
class Stories(BatchData[list[Example]]):
    """Batches of stories and sums.

    The first ``sum_steps`` training batches, counted from 0, contain only sums, later ones a share ``sums`` of them.
    In a share ``made_up`` of the batches all names are made up. Whole batches have them because made-up names are long,
    and all rows of a batch are padded to the same length.
    """

    task: ArithmeticTask
    batch_size: int
    sum_steps: int
    sums: float
    made_up: float
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        within("[0, 1)", sums=self.sums, made_up=self.made_up)

    def batch(self, number: int, *, split: Split = "train") -> list[Example]:
        rng = random.Random(f"{self.seed}/stories/{split}/{number}")
        sums = 1.0 if split == "train" and number < self.sum_steps else self.sums
        made_up = rng.random() < self.made_up
        return [
            draw_sum(self.task, rng) if rng.random() < sums else draw_story(self.task, split, rng, made_up=made_up)
            for _ in range(self.batch_size)
        ]
