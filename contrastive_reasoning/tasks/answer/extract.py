r"""Extracts the answer of a completion: the last box, else the statement in the last line.

If the completion contains an end of thoughts (``</think>``, ``[/THINK]`` and those of other model families), only the
text after the last one counts. A box is ``\boxed{…}`` or ``\fbox{…}`` (LaTeX draws the same frame) with balanced
braces, or ``\boxed …`` up to the end of the formula. The last box always counts. If it is empty or not closed, there is
no answer, and no earlier box is used instead. Boxes separated only by a comma, a word or a name, ``x=\boxed{2} or
x=\boxed{3}``, are one answer. A box inside a box is part of the outer one.
Without any box, the completion may state its answer: in ``<answer>42</answer>``, after ``####``, or in its last line
as ``Answer: 42``, ``the answer is $42$``, ``42 is the answer``. The answer may be on the line after ``is``. A reason
after it is left out, and so is a last line about confidence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MAX_ANSWER = 512
"""Maximum number of characters of an answer; the longest gold answer of the sets in use has 159."""
NO_BOX = "no boxed answer"
"""The reason of a verdict on a text without a box."""
MAX_BOXES = 8
"""Maximum number of boxes before the last one that are examined, nested or side by side."""
MAX_GAP = 60
"""Maximum number of characters between two boxes of one answer."""

THOUGHT_ENDS = (
    "</think>",
    "</thinking>",
    "</thought>",
    "</thoughts>",
    "</reasoning>",
    "</reason>",
    "</reflection>",
    "</scratchpad>",
    "</analysis>",
    "</seed:think>",
    "[/THINK]",
    "[/REASONING]",
    "◁/think▷",
    "<|/think|>",
    "<|/thinking|>",
    "<|end_of_thought|>",
    "<|channel|>final<|message|>",
)
"""Tags that end the thoughts of a completion, by model family, in upper or lower case; a completion uses one kind."""
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE_END = re.compile(r"(?<!\\)\$|\\\)|\\\]|\n")
_STATED = re.compile(
    r"####|(?<!wrong )(?<!incorrect )(?<!false )"
    r"\banswer(?:\*\*|__)?\s{0,4}(?:is|(?:should|must|has to|will|would) be|equals|:|=)"
    r"(?:\s{0,4}(?:therefore|thus|hence|then|so|simply|just|now|exactly|:))?(?![a-z])"
    r"\s{0,4}:?",
    re.IGNORECASE,
)
_STATED_BEFORE = re.compile(
    r"(?:.*(?:[.:;,] |\b(?:so|thus|hence|therefore|then)\b,? ?))? *(?P<answer>[^;:]{1,80}?)"
    r" +is +(?:the|our|my) +(?:final +)?answer"
    r"[ .!*]{0,8}",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"(?:[#*_ ]{0,8}(?:the )?(?:final )?answer|.{0,200}\b(?:the|my|our) (?:final )?answer (?:is|equals))[#*_: ]{0,8}",
    re.IGNORECASE,
)
_CONFIDENCE = re.compile(r"\n[#*_ ]{0,8}confidence\b[^\n]{0,40}$", re.IGNORECASE)
"""A last line about confidence, which does not state the answer."""
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).){0,600}?)</answer>", re.IGNORECASE | re.DOTALL)
_MATH = re.compile(r"\$|\\[()\[\]]|\\(?:text|mbox)(?![A-Za-z])|\\(?:quad|qquad)(?![A-Za-z])|\\[,;: ]|[{}]")
_NAMED = r"(?:[A-Za-z](?: ?_ ?[0-9A-Za-z])? ?= ?)"
_ONE_ANSWER = re.compile(rf"\s*(?:[,;]|[,;]?\s*\b(?:and|or)\b)\s*(?P<name>{_NAMED})?\s*", re.IGNORECASE)
"""The text allowed between two boxes of one answer, after the signs that open and close formulas are removed."""
_NAME_BEFORE = re.compile(rf"(?<![A-Za-z0-9_+*/^=-])(?P<name>{_NAMED})\s*$")
_VALUE = re.compile(rf"\s*{_NAMED}?[^=]*[^=\s][^=]*")
"""A box that holds a value, possibly with a name, ``x = 2``; neither an empty one nor another equation."""
_NEXT_SENTENCE = re.compile(r"\.\s+[A-Z]|,?\s(?:because|since|which)\b")
"""The end of a stated answer: the next sentence, or the reason."""


class Extraction(NamedTuple):
    """An answer as written, or the reason why there is none."""

    answer: str | None
    reason: str
    boxed: bool


def extract_answer(completion: str) -> str | None:
    """The answer of a completion as written, without its box; None if there is none."""
    return extract(completion).answer


def has_box(completion: str) -> bool:
    """Whether the answer of a completion, if there is one, is in a box; also true for an empty or unclosed box."""
    return extract(completion).boxed


def extract(completion: str) -> Extraction:
    """The answer of a completion, and whether it is in a box."""
    text = without_thoughts(completion)
    inside = last_box(text)
    if inside is not None:
        return _check_length(inside, missing="empty box", boxed=True)
    if _BOX.search(text):
        return Extraction(None, "box not closed", True)
    return _check_length(stated_answer(text), missing=NO_BOX if text.strip() else "empty completion", boxed=False)


def without_thoughts(completion: str, ends: Sequence[str] = THOUGHT_ENDS) -> str:
    """The text after the last end of thoughts, matched in any letter case; the whole completion if there is none."""
    lower = completion.lower()
    if len(lower) != len(completion):  # a letter with a longer lower-case form would shift the positions
        lower = completion
    places = (lower.rfind(tag.lower()) + len(tag) for tag in ends if tag.lower() in lower)
    return completion[max(places, default=0) :]


def _check_length(answer: str, *, missing: str, boxed: bool) -> Extraction:
    if not answer.strip():
        return Extraction(None, missing, boxed)
    if len(answer) > MAX_ANSWER:
        return Extraction(None, f"answer longer than {MAX_ANSWER} characters", boxed)
    return Extraction(answer.strip(), "", boxed)


def last_box(text: str) -> str | None:
    """The content of the last box, or of the outermost one around it; None if there is none or it is not closed."""
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    last, *earlier = [(box.start(), *_span(text, box.end())) for box in reversed(boxes[-1 - MAX_BOXES :])]
    first, begin, end = last
    for box in earlier:
        if box[2] > last[2] >= 0:  # around the last box
            first, begin, end = box
    if end < 0:
        return None
    found = [text[begin:end]]
    names = [""]
    for start, begin, end in earlier:
        if (
            0 <= end < first
            and all(map(_VALUE.fullmatch, (text[begin:end], found[0])))
            and (gap := _gap(text[end:first]))
        ):
            names[0] = gap["name"] or ""
            names.insert(0, _name_before(text[:start]))
            first = start
            found.insert(0, text[begin:end])
    if len(set(names)) == len(names) and all(names):  # x = 1, y = 2: the order matters, so the names are kept
        found = [name + value for name, value in zip(names, found, strict=True)]
    return found[0] if len(set(found)) == 1 else ", ".join(found)


def _gap(gap: str) -> re.Match[str] | None:
    """Matches the text between a box and the next one if it is only a comma, a word and a name; else None."""
    return _ONE_ANSWER.fullmatch(_MATH.sub(" ", gap)) if len(gap) <= MAX_GAP and gap.startswith("}") else None


def _name_before(text: str) -> str:
    """The name ``x =`` at the end of the text before a box; empty if there is none."""
    found = _NAME_BEFORE.search(_MATH.sub(" ", text[-MAX_GAP:]))
    return found["name"] if found else ""


def _span(text: str, start: int) -> tuple[int, int]:
    """Start and end of the content of a box whose command ends at ``start``, limited to little over ``MAX_ANSWER``.

    The end is -1 if the box is not closed.
    """
    window = text[start : start + MAX_ANSWER + 3]
    begin = len(window) - len(window.lstrip())
    if not window.startswith("{", begin):
        stop = _BARE_END.search(window, begin)
        return start + begin, start + (stop.start() if stop else len(window))
    end = closing_brace(window)
    if end < 0 and len(window) == MAX_ANSWER + 3:  # cut off by the window: too long, rather than not closed
        end = len(window)
    return start + begin + 1, start + end if end >= 0 else -1


def closing_brace(text: str) -> int:
    r"""Position at which the first brace of ``text`` closes; -1 if it does not. ``\{`` and ``\}`` are not braces."""
    depth = 0
    for token in _BRACES.finditer(text):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                return token.start()
    return -1


def stated_answer(text: str) -> str:
    """The answer that a text states without a box: in tags, in its last line, else after ``####``; else empty."""
    tail = _CONFIDENCE.sub("", text[-8 * MAX_ANSWER :].rstrip()).rstrip()
    if tagged := _TAGGED.findall(tail):
        return tagged[-1].strip()
    line = tail.rpartition("\n")[2]
    if marks := list(_STATED.finditer(line)):
        answer = line[marks[-1].end() :]
        sentence = _NEXT_SENTENCE.search(answer)
        return answer[: sentence.start() if sentence else None].replace("**", "").strip()
    if _HEADING.fullmatch(tail.rpartition("\n")[0].rstrip().rpartition("\n")[2]):
        return line.strip(" *")
    if before := _STATED_BEFORE.fullmatch(" ".join(line[-200:].split())):
        return before["answer"].strip(" *")
    return tail.rpartition("####")[2].partition("\n")[0].strip() if "####" in tail else ""
