"""The instruction stands in a prompt exactly once, whatever the question already says."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.formats import with_instruction, without_instruction

PLAIN = r"Let's think step by step and output the final answer within \boxed{}."
MMLU = r"Let's think step by step and output the final answer (eg, A, B, C, D) within \boxed{}."
COMMONSENSE = r"Let's think step by step and output the final answer (eg, A, B, C, D, E) within \boxed{}."
TRUTHFUL = r"Let's think step by step and output the final answer (eg, A, B, C, D, ...) within \boxed{}."
ALL = [PLAIN, MMLU, COMMONSENSE, TRUTHFUL]


@pytest.mark.parametrize("instruction", ALL)
@pytest.mark.parametrize("already", ALL)
def test_never_twice(instruction: str, already: str) -> None:
    once = with_instruction("What is 1+1?", already)
    assert once == f"What is 1+1?\n{already}"
    assert with_instruction(once, instruction) == once


def test_words_of_ones_own_are_not_repeated_either() -> None:
    once = with_instruction("What is 1+1?", "Box it.")
    assert once == "What is 1+1?\nBox it."
    assert with_instruction(once, "Box it.") == once


def test_no_instruction_leaves_the_question() -> None:
    assert with_instruction("What is 1+1?", "") == "What is 1+1?"


@pytest.mark.parametrize("instruction", ALL)
def test_the_question_comes_back(instruction: str) -> None:
    assert without_instruction(with_instruction("What is 1+1?", instruction)) == "What is 1+1?"
