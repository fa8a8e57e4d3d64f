"""The error that ends a run with a sentence instead of a traceback."""

from __future__ import annotations

from typing import ClassVar

RUN_AGAIN = "; run the same command again to resume"


class EndsRun(Exception):
    """An error whose message is one sentence and says all that a user needs. Parts of your own may raise it, too."""

    exit_code: ClassVar[int] = 1
    alone: ClassVar[bool] = False
    """Whether one rank may raise it without the others, and then reports it itself."""
    advice: ClassVar[str] = ""
    """What follows the message, if every one has the same advice."""
