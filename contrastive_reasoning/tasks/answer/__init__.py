r"""Answers: compares the answer of a completion with the gold answer.

Only the answer counts, in any notation, and there may be only one: ``0.5``, ``\frac{2}{4}`` and ``x = \frac12`` are
the same, ``0.5 or 7`` is wrong. Model text is data: it is read by bounded grammars, rejected if it is too long or too
costly to evaluate, and never executed. Numbers are compared as exact fractions; formulas are compared by math-verify
within a budget of steps. From text to verdict:

    extract.extract      completion → the answer as written: the last box, else the statement in the last line
    spelling.plain       → the plain spelling, in which answers are compared
    compare.compare      gold and answer by number, words, units, collection or equation; else as formulas:
    limits.objection         rejects formulas that would cost too much
    symbolic.same_formula    math-verify

``verify.verify_answer`` runs all of it; ``pose`` runs all but math-verify, ``settle`` the rest. ``measure`` enables a
second comparison, in the measure that the question asks for.
"""

from contrastive_reasoning.tasks.answer.extract import (
    NO_BOX as NO_BOX,
    extract_answer as extract_answer,
    has_box as has_box,
)
from contrastive_reasoning.tasks.answer.measure import in_asked_measure as in_asked_measure
from contrastive_reasoning.tasks.answer.verify import (
    Question as Question,
    check_golds as check_golds,
    pose as pose,
    settle as settle,
    verify_answer as verify_answer,
    verify_choice as verify_choice,
)
