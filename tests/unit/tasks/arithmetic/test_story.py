"""Stories: their text, and the plans that follow from their words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contrastive_reasoning.tasks.arithmetic import (
    WORDS,
    ArithmeticProblem,
    Clause,
    Story,
    plan_of,
    true_meanings,
    verify,
)
from contrastive_reasoning.tasks.arithmetic.story import CHOICES, NAMES, NEW_NAMES, NEW_THINGS, THINGS, words_of

STORY = Story(
    names=("Mia", "Tom"),
    thing="figs",
    start=5,
    opening="more",
    second=3,
    clauses=(
        Clause(word="buys", person=0, number=4),
        Clause(word="mails", person=1, number=2),
        Clause(word="paints", person=0, number=3),
    ),
    asked=0,
)


def equations(story: Story, **meanings: str) -> list[str] | None:
    plan = plan_of(story, true_meanings(story) | meanings, limit=99)  # type: ignore[arg-type]
    return None if plan is None else [str(step.equation) for step in plan]


def one_clause(word: str, *, asked: int | str = 0, opening: str = "plain") -> Story:
    clause = Clause(word=word, person=0, number=2)
    return replace(STORY, start=8, second=3, opening=opening, clauses=(clause,), asked=asked)  # type: ignore[arg-type]


def test_story_has_expected_text_situation_and_key() -> None:
    expected = "Mia has 5 figs. Tom has 3 more. Mia buys 4. Tom mails Mia 2. Mia paints 3. How many has Mia?\n"
    assert STORY.text == expected
    alone = replace(STORY, opening="alone", second=0, clauses=STORY.clauses[:1])
    assert alone.text == "Mia has 5 figs. Mia buys 4. How many has Mia?\n"
    other = replace(STORY, names=("Liv", "Abe"), thing="plums", asked="gap")
    assert other.text.endswith("Liv paints 3. What is the gap?\n")
    assert other.situation == STORY.situation
    assert replace(other, asked=0).key == STORY.key != other.key


@pytest.mark.parametrize(
    ("asked", "plan"),
    [
        (0, ["5+4=9", "9+2=11"]),
        (1, ["5+3=8", "8-2=6"]),
        ("total", ["5+3=8", "5+4=9", "8-2=6", "9+2=11", "11+6=17"]),
        ("gap", ["5+3=8", "5+4=9", "8-2=6", "9+2=11", "11-6=5"]),
    ],
)
def test_plan_contains_only_equations_that_question_needs(asked: int | str, plan: list[str]) -> None:
    assert equations(replace(STORY, asked=asked)) == plan


@pytest.mark.parametrize(
    ("meaning", "mine", "others"),
    [
        ("gain", ["8+2=10"], None),
        ("lose", ["8-2=6"], None),
        ("nothing", None, None),
        ("times", ["8*2=16"], None),
        ("share", ["8/2=4"], None),
        ("send", ["8-2=6"], ["3+2=5"]),
        ("receive", ["8+2=10"], ["3-2=1"]),
    ],
)
def test_meaning_of_word_determines_equations(meaning: str, mine: list[str] | None, others: list[str] | None) -> None:
    found = [word for word in WORDS.values() if word.meaning == meaning]
    assert found
    for word in found:
        assert equations(one_clause(word.text)) == mine, word
        assert equations(one_clause(word.text, asked=1)) == others, word


@pytest.mark.parametrize("word", WORDS)
def test_solutions_with_every_word_are_correct(word: str) -> None:
    asked: tuple[int | str, ...] = (word,) if WORDS[word].form == "asked" else (0, 1, "total", "gap")
    acting = "finds" if WORDS[word].form == "asked" else word
    openings = ("plain", "more", "fewer", "times")
    stories = [one_clause(acting, asked=each, opening=opening) for each in asked for opening in openings]
    assert all(any(equations(story) for story in stories if story.opening == opening) for opening in openings)
    for story in filter(equations, stories):
        problem = ArithmeticProblem(story, limit=99)
        verdict = verify(problem, problem.solution)
        assert verdict.correct
        assert verdict.fields["right_plan"]


def test_plan_of_returns_none_for_forbidden_results() -> None:
    assert equations(replace(one_clause("loses"), start=1)) is None
    assert equations(replace(one_clause("keeps"), start=9)) is None
    assert equations(replace(one_clause("has"), start=50)) is None
    assert equations(replace(one_clause("loses"), start=2)) is None, "an answer of 0"
    with pytest.raises(ValueError, match="99"):
        ArithmeticProblem(replace(one_clause("has"), start=50), limit=99)


def test_lexicon_covers_every_meaning_and_new_names_are_disjoint() -> None:
    assert all(word.meaning in CHOICES[word.form] for word in WORDS.values())
    for form in ("solo", "transfer", "asked"):
        for taught in (True, False):
            known = {WORDS[text].meaning for text in words_of(form, taught=taught)}  # type: ignore[arg-type]
            assert known == set(CHOICES[form]), "each meaning is shown, and each must be found"
    assert not set(NAMES) & set(NEW_NAMES)
    assert not set(THINGS) & set(NEW_THINGS)
