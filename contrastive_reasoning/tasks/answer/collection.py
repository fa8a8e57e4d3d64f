r"""Splits an answer with several values, ``1, -2``, ``(3, \pi/2)``, ``\{1, 2\}``, ``[0, 1)`` or a matrix, into items.

The items between commas are found by counting brackets, not by parsing mathematics. ``or``, ``and`` and ``±`` separate
too, so an answer that offers several values always counts as several values. The brackets of two lists determine
whether the order matters when they are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from contrastive_reasoning.tasks.base import OK, Verdict, wrong

MAX_ITEMS = 64
MAX_DEPTH = 12
"""Maximum nesting depth of brackets."""

_TOKENS = re.compile(
    r"(?P<open>\\begin ?\{[A-Za-z*]{1,12}\}|\\\{|\\langle(?![A-Za-z])|[(\[{])"
    r"|(?P<close>\\end ?\{[A-Za-z*]{1,12}\}|\\\}|\\rangle(?![A-Za-z])|[)\]}])"
    r"|(?P<and>(?<![A-Za-z\\])(?:and|or)(?![A-Za-z]))"
    r"|(?P<other>\\[A-Za-z]+|\\.|.)",
    re.DOTALL,
)
_MATRIX = re.compile(
    r"\\begin ?\{([pbB]?(?:small)?matrix|array|cases)\}(?: ?\{[lcr| ]{0,12}\})?(.*)\\end ?\{\1\}", re.DOTALL
)
_CELL = re.compile(r"^(?:if|when|for) | +$")
"""The words before the condition in a cell, and blanks."""
_PAIRED = {"(": ")]", "[": ")]", r"\{": r"\}", r"\langle": r"\rangle", "{": "}"}
_WIDE = re.compile(r", |;| (?:or|and) ")
"""Separators that cannot be confused with a comma within a number."""
_THOUSANDS = re.compile(r"(?<![0-9,.])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])")
_TIGHT = re.compile(r"(?<=[0-9]),(?=[0-9])")
_SIGN_OF_TWO = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_WITHOUT_ORDER = ("", r"\{\}")
Compare = Callable[[str, str], Verdict | None]
"""Compares a gold text with another one, both in plain spelling; returns None if it cannot decide."""


class Collection(NamedTuple):
    """The items of an answer, as written between the separators."""

    brackets: str
    """The opening and the closing bracket; ``2x1`` for a matrix of two rows and one column; empty for a bare list."""
    items: tuple[str, ...]

    @property
    def is_matrix(self) -> bool:
        return "x" in self.brackets


def read_collection(text: str) -> Collection | None:
    """The items of a text in plain spelling; None if it is a single value, or the brackets do not match."""
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        return _matrix(matrix[2])
    inside, brackets = peel(text)
    items = split(_whole_thousands(inside))
    if len(items) < 2 and brackets:
        items, brackets = split(_whole_thousands(text)), ""
    items = tuple(value for item in items for value in plus_minus(item))
    return Collection(brackets, items) if 2 <= len(items) <= MAX_ITEMS else None


def compare_lists(gold: Collection, answer: Collection, compare: Compare) -> Verdict | None:
    r"""Compares two lists item by item; in any order if both are sets or bare lists.

    A bare list may stand for a pair ``(a, b)``. Other brackets around two items have another meaning: ``[a, b]`` is an
    interval, ``\{a, b\}`` a set. Around more than two items, any brackets just denote a list.
    """
    if len(gold.items) != len(answer.items):
        return wrong(f"number of answers: {len(answer.items)} instead of {len(gold.items)}")
    if gold.brackets in _WITHOUT_ORDER and answer.brackets in _WITHOUT_ORDER:
        return _in_any_order(gold.items, answer.items, compare)
    if not _comparable(gold, answer):
        return wrong("other brackets")
    return every(compare(*pair) for pair in zip(gold.items, answer.items, strict=True))


def every(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """Returns the first negative verdict; else None if one is open; else ok."""
    open_question = False
    for verdict in verdicts:
        if verdict is None:
            open_question = True
        elif not verdict.correct:
            return verdict
    return None if open_question else OK


def any_of(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """Returns ok if one verdict is ok; else None if one is open; else the first verdict."""
    found = list(verdicts)
    if any(verdict is not None and verdict.correct for verdict in found):
        return OK
    return None if None in found else found[0]


def peel(text: str) -> tuple[str, str]:
    """The content of brackets around the whole text, and the brackets; the text and "" if there are none."""
    depth, opener = 0, ""
    for token in _TOKENS.finditer(text):
        if token["open"]:
            depth += 1
            opener = opener or token["open"]
        elif token["close"]:
            depth -= 1
        if depth <= 0:
            whole = token["close"] and token.end() == len(text) and token["close"] in _PAIRED.get(opener, "")
            return (text[len(opener) : token.start()].strip(), opener + token["close"]) if whole else (text, "")
    return text, ""


def split(text: str) -> list[str]:
    """The parts of a text between semicolons, else between commas, outside all brackets; also at ``or`` and ``and``."""
    found = list(_separators(text))
    kind = ";" if any(separator == ";" for _, _, separator in found) else ","
    parts, start = [], 0
    for begin, end, separator in found:
        if separator in (kind, "or"):
            parts.append(text[start:begin].strip())
            start = end
    parts.append(text[start:].strip())
    # "2, 3, and 4" has an empty part between its last comma and "and"
    return [part for part in parts if part] if len(parts) > 1 else parts


def plus_minus(item: str) -> tuple[str, ...]:
    r"""The two values of an item with one ``\pm`` or ``\mp``."""
    parts = _SIGN_OF_TWO.split(item)
    if len(parts) != 2:
        return (item,)
    before, behind = parts
    return f"{before}+{behind}".removeprefix("+").strip(), f"{before}-{behind}".strip()


def _separators(text: str) -> list[tuple[int, int, str]]:
    depth, found = 0, []
    for token in _TOKENS.finditer(text):
        depth += bool(token["open"]) - bool(token["close"])
        if depth < 0 or depth > MAX_DEPTH:
            return []
        if depth == 0 and (token["and"] or token.group() in (",", ";")):
            found.append((token.start(), token.end(), "or" if token["and"] else token.group()))
    return found if depth == 0 else []


def _matrix(inside: str) -> Collection | None:
    rows = [row.split("&") for row in inside.strip().removesuffix(r"\\").split(r"\\")]
    cells = tuple(_CELL.sub("", cell.strip().rstrip(",")) for row in rows for cell in row)
    if len({len(row) for row in rows}) != 1 or len(cells) > MAX_ITEMS:
        return None
    return Collection(f"{len(rows)}x{len(rows[0])}", cells)


def _whole_thousands(text: str) -> str:
    """Removes the commas within numbers in ``1,000, 2,000`` and ``0 or 1,000``; ``100,101`` stays two numbers.

    This applies only outside all brackets, and only if every comma between digits is a thousands separator. The text
    ``1,7,103, 105``, for example, stays as it is.
    """
    if not _WIDE.search(text):
        return text
    depth, outside = 0, []  # ``outside`` has the length of the text, so positions found in it hold for the text
    for token in _TOKENS.finditer(text):
        depth -= bool(token["close"])
        outside.append(token.group() if depth == 0 and not token["open"] else " " * len(token.group()))
        depth += bool(token["open"])
    found = list(_THOUSANDS.finditer("".join(outside)))
    if sum(number[0].count(",") for number in found) != len(_TIGHT.findall("".join(outside))):
        return text
    for number in reversed(found):  # from the end, so that earlier positions stay valid
        text = text[: number.start()] + number[0].replace(",", "") + text[number.end() :]
    return text


def _comparable(gold: Collection, answer: Collection) -> bool:
    if gold.brackets == answer.brackets:
        return True
    if gold.is_matrix or answer.is_matrix:
        return False
    return len(gold.items) > 2 or {gold.brackets, answer.brackets} == {"()", ""}


def _in_any_order(gold: Sequence[str], answer: Sequence[str], compare: Compare) -> Verdict | None:
    """Matches each gold item with the first remaining item that equals it; optimal because equality is transitive."""
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
