r"""Answers: is what a completion gives as its answer equal to the gold one?

Only the answer counts, in whatever form it is written, and only one: ``0.5``, ``\frac{2}{4}`` and ``x = \frac12`` are
the same, ``0.5 or 7`` is wrong. What a model wrote is data: read by bounded grammars, refused by length and by what
working it out would cost, never evaluated. Numbers are compared as exact fractions here; formulas are left to
math-verify, within a budget of steps.
"""

from contrastive_reasoning.tasks.answer.choice import verify_choice
from contrastive_reasoning.tasks.answer.extract import extract_answer
from contrastive_reasoning.tasks.answer.golds import check_golds
from contrastive_reasoning.tasks.answer.measure import in_asked_measure
from contrastive_reasoning.tasks.answer.verify import Question, pose, settle, verify_answer

__all__ = [
    "Question",
    "check_golds",
    "extract_answer",
    "in_asked_measure",
    "pose",
    "settle",
    "verify_answer",
    "verify_choice",
]
