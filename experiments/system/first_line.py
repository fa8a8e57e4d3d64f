"""An error in one line."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of what an error says that is not blank; its name where it says nothing."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
