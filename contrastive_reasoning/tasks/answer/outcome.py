"""The verdicts of the comparison, and what several of them make together; None is a question that is still open."""

from __future__ import annotations

from collections.abc import Iterable

from contrastive_reasoning.tasks.base import Verdict

OK = Verdict(status="ok", reason="")


def wrong(reason: str) -> Verdict:
    return Verdict(status="wrong", reason=reason)


def unparsed(reason: str) -> Verdict:
    return Verdict(status="unparsed", reason=reason)


def every(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The first verdict against the answer; else None if one is open; else ok."""
    open_question = False
    for verdict in verdicts:
        if verdict is None:
            open_question = True
        elif not verdict.correct:
            return verdict
    return None if open_question else OK
