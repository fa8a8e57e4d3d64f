"""Perturbed problems differ from their stories in the intended way and in no other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from contrastive_reasoning.tasks.arithmetic import Equation, plan_of, true_meanings
from contrastive_reasoning.tasks.arithmetic.generator import Variant, draw_distinct, draw_perturbed
from contrastive_reasoning.tasks.arithmetic.story import NEW_NAMES, NEW_THINGS, WORDS
from tests.unit.tasks.arithmetic.kit import arithmetic

COUNT = 60


SPACE = arithmetic().space


def variants(kind: str) -> list[Variant]:
    return list(islice(draw_perturbed(SPACE, seed=0, kind=kind), COUNT))


@pytest.fixture(scope="module")
def simple() -> list[Variant]:
    return variants("perturb_simple")


@pytest.fixture(scope="module")
def hard() -> list[Variant]:
    return variants("perturb_hard")


def plans(variant: Variant) -> list[list[Equation]]:
    """The equations of the base story and of its variant."""
    both = [plan_of(story, true_meanings(story), limit=99) or () for story in (variant.base, variant.story)]
    return [[step.equation for step in plan] for plan in both]


def test_simple_variant_keeps_operations_and_has_new_values(simple: list[Variant]) -> None:
    for variant in simple:
        before, after = plans(variant)
        assert [equation.op for equation in before] == [equation.op for equation in after]
        assert variant.story.words == variant.base.words
        assert variant.story.asked == variant.base.asked
        assert [clause.person for clause in variant.story.clauses] == [c.person for c in variant.base.clauses]
        assert {4, 7} & set(variant.story.numbers)
        assert not {4, 7} & set(variant.base.numbers)
        assert set(variant.story.names) <= set(NEW_NAMES)
        assert variant.story.thing in NEW_THINGS


def test_hard_variant_changes_one_thing_and_so_plan_and_answer(hard: list[Variant]) -> None:
    for variant in hard:
        before, after = plans(variant)
        assert before[-1].result != after[-1].result
        assert Counter(before) != Counter(after)
        assert 2 <= len(after) <= 5
        story, base = variant.story, variant.base
        if variant.change == "question":
            assert replace(story, asked=base.asked) == base
        elif variant.change == "operation":
            differing = [pair for pair in zip(story.clauses, base.clauses, strict=True) if pair[0] != pair[1]]
            assert replace(story, clauses=base.clauses) == base
            assert len(differing) == 1
            mine, other = differing[0]
            assert replace(mine, word=other.word) == other
            assert WORDS[mine.word].form == WORDS[other.word].form
            assert WORDS[mine.word].meaning != WORDS[other.word].meaning
        else:
            shorter = [story.clauses[:place] + story.clauses[place + 1 :] for place in range(len(story.clauses))]
            assert base.clauses in shorter
            assert replace(story, clauses=base.clauses) == base


def test_nearly_every_test_story_has_variants(simple: list[Variant], hard: list[Variant]) -> None:
    counts = Counter(variant.change for variant in hard)
    assert set(counts) == {"question", "operation", "step"}
    assert min(counts.values()) >= COUNT // 6
    stories = list(islice(draw_distinct(SPACE, seed=0, split="test"), COUNT))
    for variants in (simple, hard):
        assert sum(variant.base in stories for variant in variants) >= 0.95 * COUNT


def test_perturbed_problem_fields_name_base_and_change() -> None:
    by_key = {problem.key for problem in arithmetic(test_problems=30).problems("test")}
    for problem in arithmetic(test="perturb_hard", test_problems=10).problems("test"):
        assert problem.fields["base"] in by_key
        assert problem.fields["change"] in ("question", "operation", "step")
        assert problem.fields["source"] == "perturb_hard"
