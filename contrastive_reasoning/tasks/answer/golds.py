r"""Gold answers as data sets write them: found in whole solutions, repaired where an escape was lost, and checked.

A gold answer may be damaged: ``"\frac"`` written without a second backslash is a form feed and ``rac``. What a lost
escape left behind is put back where no other reading makes sense.
"""

from __future__ import annotations

import json
import re

from contrastive_reasoning.tasks.answer.extract import last_box, stated

_LOST = {
    "\f": ("frac", "forall"),
    "\b": ("binom", "begin", "beta", "bar", "boxed", "big", "bmod"),
    "\v": ("vec", "vert", "varphi", "varepsilon", "vee"),
    "\a": ("alpha", "angle", "approx", "arc"),
    "\t": ("text", "times", "theta", "tan", "tau", "tfrac", "triangle", "textbf", "textcirc", "textdegree"),
    "\r": ("right", "rho", "rangle", "rightarrow", "rfloor", "rceil"),
    "\n": ("neq", "nabla", "notin"),
}
"""Escape of Python and JSON → commands of LaTeX that begin with its letter."""
_DAMAGES = [
    (re.compile(rf"{escape}(?={'|'.join(name[1:] for name in names)}(?![a-z]))"), rf"\\{names[0][0]}")
    for escape, names in _LOST.items()
]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HEADLESS = re.compile(r"(?<![A-Za-z\\])(?P<rest>rac(?= ?\{)|ext(?= ?\{)|qrt(?= ?\{)|imes(?= ?[0-9\\]))")
_HEADS = {"rac": r"\f", "ext": r"\t", "qrt": r"\s", "imes": r"\t"}
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z]{2,})")
MISSING = frozenset(("nan", "null", "n/a", "<na>"))
"""What programs write for a value that there is not, in small letters."""


def gold_text(gold: str) -> str:
    """The answer in a gold text: the last box of a whole solution, what it states, else the text itself; repaired."""
    gold = repaired(gold)
    inside = last_box(gold)
    if inside is None:
        said = stated(gold).lstrip("} ")
        inside = said if said and said.count("{") == said.count("}") and not said.startswith("not") else gold
    return _from_json(inside.strip())


def repaired(text: str) -> str:
    r"""The text with the backslashes that it lost: form feed and ``rac{1}{2}`` are ``\frac{1}{2}``."""
    for damage, whole in _DAMAGES:
        text = damage.sub(whole, text)
    text = _HEADLESS.sub(lambda found: _HEADS[found["rest"]] + found["rest"], text)
    if r"\begin" not in text:  # else two backslashes end a row
        text = _DOUBLED.sub(lambda _: "\\", text)
    text = _CONTROL.sub(" ", text).strip().rstrip("^_ ")
    depth = len(re.findall(r"(?<!\\)\{", text)) - len(re.findall(r"(?<!\\)\}", text))
    if depth == -1 and text.endswith("}"):
        return text[:-1]
    return f"{text}}}" if depth == 1 and r"\boxed" not in text else text


def _from_json(text: str) -> str:
    """A list of values that was written as JSON, ``["2"]``, with commas."""
    if not text.startswith('["'):
        return text
    try:
        values = json.loads(text)
    except ValueError:
        return text
    return ", ".join(values) if values and all(isinstance(value, str) for value in values) else text
