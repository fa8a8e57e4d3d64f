r"""The verdict on a mathematical answer: extracts it, compares it, and compares formulas symbolically.

    question = pose(gold, completion)          a verdict, or an open question; milliseconds at most
    settle(question)                           the rest, within a budget of steps

``verify_answer`` runs both in this process; ``workers.answers.AnswerPool`` runs the second in a worker.
``verify_choice`` gives the verdict on a letter: ``B``, ``(b)``, ``\text{B}``, ``B. a bank``, ``Option B``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from contrastive_reasoning.tasks.answer.compare import compare
from contrastive_reasoning.tasks.answer.extract import MAX_ANSWER, NO_BOX, extract, stated_answer, without_thoughts
from contrastive_reasoning.tasks.answer.golds import MISSING, gold_text, repair
from contrastive_reasoning.tasks.answer.limits import objection
from contrastive_reasoning.tasks.answer.measure import in_asked_measure
from contrastive_reasoning.tasks.answer.number import read_based
from contrastive_reasoning.tasks.answer.relation import is_relation, letters
from contrastive_reasoning.tasks.answer.spelling import plain, respell
from contrastive_reasoning.tasks.answer.symbolic import GoldUnread, OutOfSteps, same_formula, within
from contrastive_reasoning.tasks.base import OK, Verdict, unparsed, wrong

STEPS = 2_000_000
"""Maximum number of function calls for one comparison: a few seconds, and four times the slowest ordinary pair."""
GOLD_UNREAD = "gold answer does not parse"

_BRACKETED = re.compile(r"[(\[].*[)\]]", re.DOTALL)
_NO_POINT = re.compile(r"\[|\]|\\infty(?![A-Za-z])")
_LETTER = re.compile(
    r"(?:(?:option|choice|answer)[ :]{1,2})?[({\[`]?(?P<letter>[A-Za-z])[)}\]`]?"
    r"(?P<rest>(?:(?:[.:,)]| ?-) ?).*)?",
    re.IGNORECASE | re.DOTALL,
)
_ANOTHER = re.compile(
    r"(?:[,;/&]|\b(?:or|and))\s*[(\[]?(?P<listed>[A-HJ-Za-k])(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:(?P<marked>[A-HJ-Z])[.:)\]]|[(\[](?P<bracketed>[A-Za-k])[)\]])"
    r"|(?:^|(?i:\b(?:or|and|else|not|no|but|to|is|be|actually|rather|instead|maybe|perhaps|possibly|probably|wait"
    r"|correction|either|then|versus|vs)\b))[^A-Za-z0-9]*(?P<alone>[A-HJ-Ka-k])(?=[^A-Za-z0-9]*(?:$|\b(?:or|and)\b))"
)
"""A second letter: after a comma or a connecting word, before another text, or alone. ``C. vitamin C`` has none."""


class Question(NamedTuple):
    """A gold answer and an answer, in plain spelling, that only the symbolic comparison can decide."""

    gold: str
    answer: str


def verify_answer(gold: str, completion: str, question: str | None = None) -> Verdict:
    """The verdict on the answer that a completion gives.

    Args:
        gold: the gold answer, or a whole solution whose last box holds it.
        completion: the model's text, of any length.
        question: the text of the problem, if known: if it asks for a percentage, the sign may be omitted.

    Returns:
        ``ok`` or ``wrong``; ``unparsed`` if there is no answer, the answer is rejected or cannot be read, or its
        comparison raises an exception; ``timeout`` if the budget of steps is exceeded; ``error`` if the gold answer
        cannot be read. Nothing is raised.
    """
    verdict = _verdict(gold, completion)
    if question is None or verdict.correct or (again := in_asked_measure(question, gold, completion)) is None:
        return verdict
    second = _verdict(*again)
    return second if second.correct else verdict


def _verdict(gold: str, completion: str) -> Verdict:
    posed = pose(gold, completion)
    return posed if isinstance(posed, Verdict) else settle(posed)


def pose(gold: str, completion: str) -> Verdict | Question:
    """Returns the verdict if no symbolic comparison is needed, else the question for it."""
    wanted = gold_text(gold)
    if not wanted or len(wanted) > MAX_ANSWER:
        return Verdict(status="error", reason="no gold answer")
    found = extract(completion)
    if found.answer is None:
        return unparsed(found.reason)
    question = Question(plain(wanted), plain(repair(found.answer)))
    if not question.answer:
        return unparsed("empty answer")
    return compare(*question, _quick_look) or question


def settle(question: Question, steps: int = STEPS) -> Verdict:
    """Returns the verdict on a question, computed within a budget of steps."""
    timeout = Verdict(status="timeout", reason=f"comparison of more than {steps} steps")
    return _verdict_within(steps, lambda: compare(*question, _symbolic), out_of_steps=timeout)


def _verdict_within(steps: int, comparison: Callable[[], Verdict | None], *, out_of_steps: Verdict) -> Verdict:
    try:
        return within(steps, comparison) or unparsed("does not parse")
    except OutOfSteps:
        return out_of_steps
    except GoldUnread:
        return Verdict(status="error", reason=GOLD_UNREAD)
    except Exception as error:  # a computer algebra system may raise anything on model text
        # not ``error``: the completion would be left out of its group, and breaking the comparison would cost nothing
        return unparsed(f"comparison ends in {type(error).__name__}")


def verify_choice(gold_letter: str, completion: str, *, boxed_only: bool = False) -> Verdict:
    """The verdict on the letter that a completion gives; several letters are never correct.

    With ``boxed_only`` only a letter in a box counts.
    """
    gold = _read_letter(gold_letter)
    if gold is None:
        return Verdict(status="error", reason="no gold letter")
    found = extract(completion)
    if boxed_only and not found.boxed:
        return unparsed(NO_BOX)
    letter = None if found.answer is None else _read_letter(found.answer)
    if letter is None and found.boxed and not boxed_only:
        # the box may be part of the reasoning, and the last line may state the letter
        letter = _read_letter(stated_answer(without_thoughts(completion)))
    if letter is None:
        return unparsed("no single letter" if found.answer else found.reason)
    return OK if letter == gold else wrong("another letter")


def _read_letter(text: str) -> str | None:
    """The letter that a text chooses, as a capital; None if it chooses none, or more than one."""
    match = _LETTER.fullmatch(plain(text))
    if match is None:
        return None
    letters = {match["letter"], *(found[found.lastgroup or 0] for found in _ANOTHER.finditer(match["rest"] or ""))}
    return match["letter"].upper() if len({letter.upper() for letter in letters}) == 1 else None


def check_golds(
    golds: Iterable[str],
    verify: Callable[[str, str], Verdict] = verify_answer,
    *,
    other_spellings: bool = True,
) -> list[tuple[int, str]]:
    r"""Finds gold answers that no completion could match, or only a completion with exactly the same text.

    Args:
        golds: gold answers, or whole solutions.
        verify: ``verify_answer``, or ``verify_choice`` for letters.
        other_spellings: whether a gold answer must also match in a spelling other than its own (``verify_answer``
            only). A damaged formula or ``nan`` does not. No policy would earn its reward in training; an evaluation
            keeps all of its problems.

    Returns:
        The row and the reason of each gold answer that ``\boxed{gold}`` or its other spelling does not match.
    """
    found = []
    for row, gold in enumerate(golds):
        verdict = verify(gold, rf"\boxed{{{gold_text(gold)}}}")
        if verdict.correct and other_spellings and verify is verify_answer:
            verdict = _in_another_spelling(plain(gold_text(gold)))
        if not verdict.correct:
            found.append((row, verdict.reason))
    return found


def _in_another_spelling(gold: str) -> Verdict:
    """The verdict on a gold answer, in plain spelling, compared with itself in another spelling."""
    if gold.lower() in MISSING:
        return Verdict(status="error", reason="no gold answer")
    # a slow comparison does not mean that the gold answer is at fault
    return _verdict_within(STEPS, lambda: compare(gold, respell(gold), _symbolic, as_text=False), out_of_steps=OK)


def _quick_look(gold: str, answer: str) -> Verdict | None:
    """The verdict on a formula that needs no symbolic work (rejected, or other variables, for example); else None."""
    reason = objection(answer)
    if reason:
        return unparsed(reason)
    wanted = read_based(gold)
    if wanted and wanted.base:
        return wrong("another number")
    if is_relation(answer) and _is_interval(gold) and len(letters(answer)) == 1:
        return None  # x > 2 is (2, oo)
    related = is_relation(gold) or is_relation(answer)
    if gold.count("'") != answer.count("'") and (letters(gold) or ("'" in gold and "'" in answer)):
        return wrong("another number of primes")
    if letters(answer) - letters(gold) or (not related and letters(gold) != letters(answer)):
        return wrong("other variables")
    return None


def _is_interval(text: str) -> bool:
    r"""Whether a text in plain spelling is an interval or a union of several; not ``(1, 2)``, which may be a point."""
    return bool(_BRACKETED.fullmatch(text) and _NO_POINT.search(text)) and not letters(text)


def _symbolic(gold: str, answer: str) -> Verdict | None:
    verdict = _quick_look(gold, answer)
    if verdict:
        return verdict
    same = same_formula(gold, answer)
    if same is None:
        return unparsed("does not parse")
    return OK if same else wrong("not equal")
