from __future__ import annotations

import random
import re
from itertools import islice
from typing import Any

import pytest

from contrastive_reasoning.tasks.arithmetic import Equation, Story, split_of
from contrastive_reasoning.tasks.arithmetic.story import NAMES, NEW_NAMES, NEW_THINGS, WORDS
from datamodules import stories
from datamodules.stories import Stories, StoryCorpus, draw_story, draw_sum
from tests.unit.tasks.arithmetic.kit import arithmetic

TASK = arithmetic(train_problems=10, validation_problems=10, test_problems=10)


def data(**changes: float) -> Stories:
    settings: dict[str, Any] = {"batch_size": 4, "sum_steps": 2, "sums": 0.25, "made_up": 0.5}
    return Stories(task=TASK, **settings | {"validation_batches": 1, "workers": 0, "seed": 0} | changes)


def equations(completion: str) -> list[Equation]:
    found = re.findall(r"^ \w+ (\d+)([-+*/])(\d+)=(\d+)$", completion, re.MULTILINE)
    return [Equation(int(a), op, int(b), int(c)) for a, op, b, c in found]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_draw_story_returns_only_stories_of_the_split(split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Story] = []
    original = stories.prompt_of

    def record(story: Story, *, instructed: bool) -> str:
        drawn.append(story)
        return original(story, instructed=instructed)

    monkeypatch.setattr(stories, "prompt_of", record)
    rng = random.Random(1)
    for index in range(120):
        draw_story(TASK, split, rng, made_up=index % 2 == 0)  # pyright: ignore[reportArgumentType]
    assert len(drawn) == 120
    assert {split_of(story) for story in drawn} == {split}


@pytest.mark.parametrize("made_up", [False, True])
def test_story_solutions_contain_only_true_equations(made_up: bool) -> None:
    rng = random.Random(2)
    for _ in range(200):
        prompt, completion = draw_story(TASK, "train", rng, made_up=made_up)
        written = equations(completion)
        assert 2 <= len(written) <= 4
        assert all(equation.true for equation in written)
        assert completion.endswith(f"\n\\boxed{{{written[-1].result}}}")
        assert not {4, 7} & set(map(int, re.findall(r"\d+", prompt)))
        assert not set(re.findall(r"[A-Za-z]+", prompt)) & {*NEW_NAMES, *NEW_THINGS}


def test_learnt_words_occur_with_every_meaning_and_taught_words_with_one() -> None:
    signs: dict[str, set[str]] = {}
    rng = random.Random(3)
    for _ in range(1500):
        prompt, completion = draw_story(TASK, "train", rng, made_up=False)
        for name, word, number in re.findall(r"(\w+) (\w+) (\d+)\.", prompt):
            alone = len(re.findall(rf"\b{number}\b", prompt)) == 1 and prompt.endswith(f"has {name}?\n")
            if alone and word in WORDS and WORDS[word].form == "solo":
                used = {equation.op for equation in equations(completion) if equation.b == int(number)}
                signs.setdefault(word, set()).update(used or {"none"})
    assert all({"+", "-", "none"} <= signs[word] for word in ("buys", "eats", "paints"))
    assert "-" not in signs["finds"]
    assert "+" not in signs["loses"]


def test_sums_are_true_and_cover_all_numbers() -> None:
    rng = random.Random(4)
    numbers = set()
    for _ in range(300):
        prompt, completion = draw_sum(TASK, rng)
        (equation,) = equations(completion)
        assert equation.true
        assert equation.result <= TASK.limit
        assert prompt == f"What is {equation.a}{equation.op}{equation.b}?\n"
        numbers.add(equation.b)
    assert numbers == set(range(2, 10))


def test_first_batches_are_sums_and_made_up_names_fill_whole_batches() -> None:
    batches = list(islice(data().train_dataloader(), 40))
    shares = [sum(prompt.startswith("What is") for prompt, _ in batch) for batch in batches]
    known = re.compile("|".join(rf"^{name}\b" for name in NAMES))
    for batch in batches:
        of_stories = {bool(known.search(prompt)) for prompt, _ in batch if not prompt.startswith("What is")}
        assert len(of_stories) <= 1
    assert shares[:2] == [4, 4]
    assert 10 <= sum(shares[2:]) <= 80
    assert any(not prompt.startswith("What is") for prompt, _ in data().batch(0, split="validation"))


def test_batch_is_determined_by_seed_and_number() -> None:
    batches = [data().batch(number) for number in range(5)]
    assert batches[2] != batches[3]
    assert data(seed=1).batch(0) != batches[0]
    corpus = StoryCorpus(task=TASK, stories=20, seed=0)
    assert corpus() == corpus()
    assert len(corpus()) == 40
    with pytest.raises(ValueError, match="made_up"):
        data(made_up=1.5)
    assert list(islice(data().train_dataloader(), 5)) == batches
