r"""Gold answers as data sets write them: extracted from whole solutions, and repaired if an escape was lost.

A gold answer may be damaged: ``"\frac"`` written without a second backslash is a form feed and ``rac``. Such damage is
repaired if no other reading makes sense.
"""

from __future__ import annotations

import json
import re

from contrastive_reasoning.tasks.answer.extract import last_box, stated_answer

_LOST = {
    "\f": ("frac", "forall"),
    "\b": ("binom", "begin", "beta", "bar", "boxed", "big", "bmod"),
    "\v": ("vec", "vert", "varphi", "varepsilon", "vee"),
    "\a": ("alpha", "angle", "approx", "arc"),
    "\t": ("text", "times", "theta", "tan", "tau", "tfrac", "triangle", "textbf", "textcirc", "textdegree"),
    "\r": ("right", "rho", "rangle", "rightarrow", "rfloor", "rceil"),
    "\n": ("neq", "nabla", "notin"),
}
"""Maps an escape of Python and JSON to the LaTeX commands that begin with its letter."""
_DAMAGES = [
    # ``escape`` is the character itself: "\b" is a backspace here, not the word boundary of a pattern
    (re.compile(rf"{escape}(?={'|'.join(name[1:] for name in names)}(?![a-z]))"), rf"\\{names[0][0]}")
    for escape, names in _LOST.items()
]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HEADLESS = re.compile(r"(?<![A-Za-z\\])(?:(?:rac|ext|qrt)(?= ?\{)|imes(?= ?[0-9\\]))")
_HEADS = {"rac": r"\f", "ext": r"\t", "qrt": r"\s", "imes": r"\t"}
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z]{2,})")
MISSING = frozenset(("nan", "null", "n/a", "<na>", "none", "tbd", "tba", "todo"))
"""Texts that programs write for a missing value, in lower case."""


def gold_text(gold: str) -> str:
    """The answer in a gold text, repaired: the last box of a solution, else its stated answer, else the whole text."""
    gold = repair(gold)
    inside = last_box(gold)
    if inside is None:
        stated = stated_answer(gold).lstrip("} ")
        inside = stated if stated and stated.count("{") == stated.count("}") and not stated.startswith("not") else gold
    return _from_json(inside.strip())


def repair(text: str) -> str:
    r"""Restores lost backslashes (a form feed and ``rac{1}{2}`` become ``\frac{1}{2}``) and one missing closing brace.

    Also removes superfluous backslashes, control characters and one superfluous closing brace.
    """
    for damage, whole in _DAMAGES:
        text = damage.sub(whole, text)
    text = _HEADLESS.sub(lambda found: _HEADS[found[0]] + found[0], text)
    if r"\begin" not in text:  # in an environment two backslashes end a row
        text = _DOUBLED.sub(lambda _: "\\", text)
    text = _CONTROL.sub(" ", text).strip().rstrip("^_ ")
    depth = len(re.findall(r"(?<!\\)\{", text)) - len(re.findall(r"(?<!\\)\}", text))
    if depth == -1 and text.endswith("}"):
        return text[:-1]
    return f"{text}}}" if depth == 1 and r"\boxed" not in text else text


def _from_json(text: str) -> str:
    """Converts a list of texts written as JSON, ``["2"]``, to a comma-separated list; returns other texts unchanged."""
    if not text.startswith('["'):
        return text
    try:
        values = json.loads(text)
    except ValueError:
        return text
    return ", ".join(values) if values and all(isinstance(value, str) for value in values) else text
