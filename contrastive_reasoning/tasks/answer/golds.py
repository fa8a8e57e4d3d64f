"""Gold answers that do not verify themselves: to be listed and left out, rather than to score every answer as wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from contrastive_reasoning.tasks.answer.extract import gold_text
from contrastive_reasoning.tasks.answer.verify import verify_answer
from contrastive_reasoning.tasks.base import Verdict


def check_golds(golds: Iterable[str], verify: Callable[[str, str], Verdict] = verify_answer) -> list[tuple[int, str]]:
    r"""The gold answers that a completion with the very same answer does not satisfy.

    Args:
        golds: gold answers, or whole solutions.
        verify: ``verify_answer``, or ``verify_choice`` for letters.

    Returns:
        The row and the reason for each gold answer that ``\boxed{gold}`` is not right for.
    """
    verdicts = (verify(gold, rf"\boxed{{{gold_text(gold)}}}") for gold in golds)
    return [(row, verdict.reason) for row, verdict in enumerate(verdicts) if not verdict.correct]
