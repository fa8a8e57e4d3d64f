"""The nearest valid name to a mistyped one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

FEW = 16
"""Names that one sentence can say all of, and still be read."""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """``did you mean 'x'?`` where something is near, else the list of what is known.

    A dotted key also matches by its last part, so ``weight`` finds ``reward.weight``.
    """
    near = nearest(word, known)
    return _there_are(known) if near is None else f"did you mean {near!r}?"


def nearest(word: str, known: Collection[str]) -> str | None:
    """The name that was meant, it seems."""
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.6) or by_last_part(word, known)), None)


def did_you_mean_one_of(word: str, known: Collection[str], *, all_of: Collection[str] | None = None) -> str:
    """The same with all there is beside the nearest: ``did you mean 'x' of x, y, z?``, where that is at most ``FEW``.

    ``all_of`` are the names as they are said, beside the nearest or in its place; None: as they are in ``known``.
    """
    near, names = nearest(word, known), known if all_of is None else all_of
    if near is None:
        return _there_are(names)
    of_all = f" of {', '.join(sorted(names))}" if 1 < len(names) <= FEW else ""
    return f"did you mean {near!r}{of_all}?"


def _there_are(names: Collection[str]) -> str:
    return f"there are {', '.join(sorted(names))}" if names else "there are none"


def by_last_part(word: str, known: Collection[str]) -> list[str]:
    """The shortest known dotted keys whose last part is, or nearly is, the word's last part."""
    last = word.rpartition(".")[2]
    tails = {key.rpartition(".")[2] for key in known}
    tail = get_close_matches(last, list(tails), n=1, cutoff=0.75)
    return sorted((key for key in known if tail and key.rpartition(".")[2] == tail[0]), key=lambda key: (len(key), key))
