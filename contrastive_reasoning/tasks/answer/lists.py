"""One list against another: which brackets mean an order, which do not, and which items belong to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contrastive_reasoning.tasks.answer.collection import Collection
from contrastive_reasoning.tasks.answer.outcome import OK, every, wrong
from contrastive_reasoning.tasks.base import Verdict

Compare = Callable[[str, str], Verdict | None]

_WITHOUT_ORDER = ("", r"\{\}")
_PAIRS = ("()", "")


def compare_lists(gold: Collection, answer: Collection, compare: Compare) -> Verdict | None:
    r"""Item by item; in any order if both are sets or bare lists.

    A bare list may stand for a pair ``(a, b)``. Other brackets around two items are another thing: ``[a, b]`` is an
    interval, ``\{a, b\}`` a set. Around more than two items they can only be a list again.
    """
    if len(gold.items) != len(answer.items):
        return wrong(f"number of answers: {len(answer.items)} instead of {len(gold.items)}")
    if gold.brackets in _WITHOUT_ORDER and answer.brackets in _WITHOUT_ORDER:
        return _in_any_order(gold.items, answer.items, compare)
    if not _comparable(gold, answer):
        return wrong("other brackets")
    return every(compare(*pair) for pair in zip(gold.items, answer.items, strict=True))


def _comparable(gold: Collection, answer: Collection) -> bool:
    if gold.brackets == answer.brackets:
        return True
    if gold.is_matrix or answer.is_matrix:
        return False
    return len(gold.items) > 2 or {gold.brackets, answer.brackets} == set(_PAIRS)


def _in_any_order(gold: Sequence[str], answer: Sequence[str], compare: Compare) -> Verdict | None:
    """Each gold item takes the first item left that equals it; that no other choice is better rests on transitivity."""
    left, is_open = list(answer), False
    for item in gold:
        verdicts = [compare(item, candidate) for candidate in left]
        match = next((index for index, verdict in enumerate(verdicts) if verdict is not None and verdict.correct), None)
        if match is not None:
            del left[match]
        elif None in verdicts:
            is_open = True
        else:
            return wrong("an item is missing")
    return None if is_open else OK
