"""Names that become folders: each is one plain part of a path, so that nothing leaves the folder where it belongs."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence

LONGEST = 100
"""Characters; file systems take 255 bytes, and endings are added."""
LONGEST_JOINED = 150
"""Bytes of several names in one."""
_REFUSED = frozenset(r'/\:*?"<>|')
"""What some file system reads as more than a letter of a name."""


def flaw(name: str) -> str | None:
    """Why a name cannot be that of a folder, in words that follow it; None for one that can."""
    if not name.strip():
        return "is blank"
    if name.startswith("."):
        return "begins with a dot"
    if name != name.strip() or name.endswith("."):
        return "begins or ends with what file systems drop"
    if len(name) > LONGEST:
        return f"has more than {LONGEST} characters"
    refused = sorted({sign for sign in name if sign in _REFUSED})
    if refused:
        return f"holds {' '.join(refused)}, and must be one plain name"
    if any(unicodedata.category(sign)[0] == "C" for sign in name):
        return "holds a sign that cannot be seen"
    return None


def plain(name: str, *, what: str) -> str:
    """The name itself, where it can be that of a folder.

    Raises:
        ValueError: for any other, naming ``what`` it is.
    """
    if wrong := flaw(name):
        raise ValueError(f"{what}={shown(name)} {wrong}")
    return name


def plain_parts(name: str, *, what: str) -> str:
    """A name like ``val/completions``, each part of which is plain."""
    for part in name.split("/"):
        if wrong := flaw(part):
            raise ValueError(f"{what}={shown(name)}: {part!r} {wrong}")
    return name


def joined(names: Sequence[str]) -> str:
    """One name for several plain ones, ``NAME+NAME``; where that is long, its beginning and a hash of them all."""
    whole = "+".join(names)
    if len(whole.encode()) <= LONGEST_JOINED:
        return whole
    # a plain name may hold a plus, and no newline
    mark = "-" + hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return whole.encode()[: LONGEST_JOINED - len(mark)].decode(errors="ignore") + mark


def shown(name: str) -> str:
    """A name in a sentence: quoted, and cut where it is long."""
    return repr(name) if len(name) <= LONGEST else f"{name[:LONGEST]!r}…"
