r"""Answers: is what a completion gives as its answer equal to the gold one?

Only the answer counts, in whatever form it is written, and only one: ``0.5``, ``\frac{2}{4}`` and ``x = \frac12`` are
the same, ``0.5 or 7`` is wrong. What a model wrote is data: read by bounded grammars, refused by length and by what
working it out would cost, never evaluated. Numbers are compared as exact fractions here; formulas are left to
math-verify, within a budget of steps. From text to verdict:

    extract.extract      completion → the answer as it is written: the last box, else what the last line states
    spelling.plain       → the one spelling that is compared
    compare.compare      gold and answer by number, words, units, collection or equation; else as formulas:
    limits.objection         refused where working it out would cost too much
    symbolic.same_formula    math-verify

``verify.verify_answer`` is the whole of it; ``pose`` all but math-verify, ``settle`` the rest. ``measure`` gives a
second chance to an answer in the measure that the question asked for.
"""

from contrastive_reasoning.tasks.answer.extract import NO_BOX, extract_answer, has_box
from contrastive_reasoning.tasks.answer.measure import in_asked_measure
from contrastive_reasoning.tasks.answer.verify import Question, check_golds, pose, settle, verify_answer, verify_choice

__all__ = [
    "NO_BOX",
    "Question",
    "check_golds",
    "extract_answer",
    "has_box",
    "in_asked_measure",
    "pose",
    "settle",
    "verify_answer",
    "verify_choice",
]
