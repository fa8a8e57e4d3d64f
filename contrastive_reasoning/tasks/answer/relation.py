r"""Answers in the form of a relation: ``x = 5``, ``x \approx 1.3``, ``2 < x \le 3``, ``n \equiv 4 \pmod 9``.

A name before a value is not part of the value. Neither is a condition after it, as in ``k\pi`` for all integers ``k``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from contrastive_reasoning.tasks.answer.collection import split
from contrastive_reasoning.tasks.answer.number import read_number
from contrastive_reasoning.tasks.answer.spelling import read_words

MAX_CONDITION = 120
"""Maximum number of characters of a condition after a formula."""

_EQUALS = re.compile(r"(?<![<>!\\=])=(?!=)|\\equiv(?![A-Za-z])")
_APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])")
_INDEX = re.compile(r"_(?:[0-9A-Za-z]|\{ ?(?:\\(?:max|min|[a-z]{2}))?[0-9A-Za-z,+\- ]*\})")
_LETTER = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi"
    r"|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega)(?![A-Za-z])|(?<![A-Za-z\\])[A-Za-z]+"
)
_COMMAND = re.compile(r"\\mathbb ?\{? ?[A-Z]|\\[A-Za-z]+|\\.")
_CONSTANTS = frozenset("ei")
_ARGUMENTS = r"\( ?(?:[A-Za-z, ]*|-?[0-9][0-9./, -]{0,20}) ?\)"
_NAME = re.compile(
    r"(?:\\(?:angle|triangle|overline|vec|bar|hat) ?)?"
    rf"\{{?(?:[A-Za-z' ]+(?: ?\^ ?\{{-1\}}(?=\())?(?: ?{_ARGUMENTS})?|{_LETTER.pattern})\}}?"
)
_OF_AN_ANGLE = re.compile(rf"\\(?:sin|cos|tan|cot|sec|csc) ?\(?(?:\\angle ?)?(?:[A-Za-z]{{1,3}}|{_LETTER.pattern})\)?")
_FUNCTION = re.compile(r"(?P<name>[A-Za-z]) ?\( ?(?P<variable>[a-z]) ?\)")
_EVENT = re.compile(r"(?<![A-Za-z\\])[PE] ?\( ?[A-Za-z] ?= ?-?[0-9A-Za-z]{1,4} ?\)")
_CASES = re.compile(r"\\begin ?\{cases\}.*?\\end ?\{cases\}", re.DOTALL)
_AT = re.compile(r"(?P<name>[A-Za-z]'{0,3}) ?\( ?(?P<place>[^=]{1,60}) ?\)")
_FUNCTION_VALUE = re.compile(r"(?<![A-Za-z\\])[A-Za-z] ?\( ?-?[0-9][0-9./]* ?\)")
_ORDER = re.compile(r"<|>|\\(?:le|ge|ne|in|notin|approx)(?![A-Za-z])")
_ORDER_OR_EQUAL = re.compile(rf"{_EQUALS.pattern}|{_ORDER.pattern}")
_LESS = re.compile(r"<|\\le(?![A-Za-z])")
_GREATER = re.compile(r">|\\ge(?![A-Za-z])")
_TURNED = {">": "<", r"\ge": r"\le"}
_MODULUS = re.compile(
    r"^(?P<value>.+?) ?(?:\( ?\\?[pb]?mod(?![a-z]) ?(?P<inner>[^()]+)\)|\\[pb]?mod(?![a-z]) ?(?P<outer>[^ ]+))$"
)
_CONDITION = re.compile(
    r"^(?P<value>.+?)(?:[,;]? (?:for|where|with|when|whenever|if|provided|given|such that|as long as) (?P<said>.+)"
    r"|[,;] ?(?P<member>[A-Za-z](?:, ?[A-Za-z])* ?\\in(?![A-Za-z]) ?.+)"
    r"|[,;]? ?\( ?(?:(?:for|where|if|when) )?"
    r"(?P<bracketed>[A-Za-z](?:, ?[A-Za-z])* ?(?:\\(?:in|ge|le|ne)(?![A-Za-z])|[<>]).+)\))$"
)
_NO_CONDITION = re.compile(r"(?<![A-Za-z])(?:or|otherwise|else|and|for|if|when)(?![A-Za-z])|\\(?:boxed|text|end)")
_IS_CONDITION = re.compile(
    r"\\(?:in|ge|le|ne)(?![A-Za-z])|[<>=]"
    r"|(?<![a-z])(?:all|any|every|each|some|integers?|real|positive|natural|arbitrary)(?![a-z])"
)
_FOR_ALL = re.compile(r"^\\forall(?![A-Za-z]) ?(?P<range>[^,]{1,40}), ?(?=[^,]+$)")
_ALL_BUT = re.compile(
    r"(?:[A-Za-z] ?\\ne(?![A-Za-z]) ?|(?:[Aa]ll )?[Rr]eal(?: numbers?)? (?:except|other than|but)(?: for)? )"
    r"(?P<value>[^,]+)"
)
_ALL_REALS = re.compile(r"(?:the set of )?(?:all )?real numbers?|all reals|(?:[A-Za-z] ?\\in ?)?\\mathbb ?\{? ?R ?\}?")
_BOUND = re.compile(r"\\(?:sum|prod)_ ?\{ ?(?P<name>[a-z]) ?=")
_OF_INTEGRATION = re.compile(r"\+ ?(?P<name>[CcKk])$")
_DOMAIN = re.compile(r"\\mathbb ?\{? ?([A-Z])")
_SET_BUILDER = re.compile(
    r"(?:\\\{)? ?(?P<name>[A-Za-z])(?: ?\\in(?![A-Za-z]) ?\\mathbb ?\{? ?R ?\}?)? ?"
    r"(?:\\(?:mid|vert)(?![A-Za-z])|\||:) ?(?P<condition>.+?)(?:\\\})?"
)
_LABEL = re.compile(r"^(?P<label>[A-Za-z][A-Za-z' ]{1,30}|[A-Z]) ?: ?(?=[^ ])")
_LABELS = re.compile(r"[A-Za-z' ]{2,30} ?: ?(?=[^ ])|(?<![A-Za-z])[A-Z] ?: ?(?=[^ ])")
_OPTION = re.compile(r"^\(?[A-E] ?[.)] (?=[^ ])")


class Value(NamedTuple):
    """A value with its context: the label and the range before it, and the modulus and the condition after it."""

    text: str
    label: str
    range: str
    r"""That of a quantifier, ``x > 0`` of ``\forall x > 0, x^2 > 0``; empty without a relation."""
    modulus: str
    condition: str

    @property
    def domain(self) -> str:
        r"""The set that the condition names, ``Z`` for ``k \in \mathbb{Z}``; empty without one."""
        found = _DOMAIN.search(self.condition)
        return found[1] if found else ""


def read_value(text: str) -> Value:
    """Separates an answer in plain spelling from its label, its modulus and its condition."""
    label = _LABEL.match(text) if len(_LABELS.findall(text)) == 1 else None
    if label:
        text = text[label.end() :]
    quantified = _FOR_ALL.match(text)
    text, condition = _without_condition(_FOR_ALL.sub("", text))
    found = _MODULUS.match(text)
    modulus = (found["inner"] or found["outer"]).strip(" {}") if found else ""
    if found and not _is_operation(text, found["value"], modulus):
        text = found["value"]
    return Value(
        text,
        label["label"].strip().lower() if label else "",
        reorder(quantified["range"].strip()) if quantified and _ORDER.search(quantified["range"]) else "",
        modulus,
        condition,
    )


def other_condition(wanted: Value, given: Value) -> bool:
    """Whether the condition of an answer is another one: another domain or range, or other numbers in equal relations.

    An inequality restricted to a domain that the gold answer does not name is another set.
    """
    if wanted.range and given.range and _squeeze(wanted.range) != _squeeze(given.range):
        return True
    if wanted.domain != given.domain and (wanted.domain or (given.domain != "R" and order_signs(given.text))):
        return bool(given.domain)
    (signs, numbers), (other_signs, other_numbers) = (
        (_ORDER_OR_EQUAL.findall(value.condition), re.findall("[0-9.]+", value.condition)) for value in (wanted, given)
    )
    return signs == other_signs and numbers != other_numbers and bool(wanted.condition and given.condition)


def _is_operation(text: str, value: str, modulus: str) -> bool:
    r"""Whether the modulus is an operation to be evaluated: ``7 \bmod 4`` is 3, and ``7 mod 5`` is not 7."""
    number, of = read_number(sides(value)[-1]), read_number(modulus)
    if number is None or of is None:
        return r"\bmod" in text and len(sides(text)) == 1
    return abs(number.value) >= of.value


def condition_of_set(text: str) -> str:
    r"""The condition in set-builder notation, ``-2 < x`` in ``\{x \mid -2 < x\}``; any other text unchanged."""
    if _ALL_REALS.fullmatch(text):
        return r"(-\infty, \infty)"
    found = _SET_BUILDER.fullmatch(text)
    return found["condition"].strip() if found and found["name"] in letters(found["condition"]) else text


def without_option(text: str) -> str:
    """Removes the letter of an option before a text: ``A. 2``."""
    return _OPTION.sub("", text)


def claims(text: str) -> list[str]:
    r"""The values of ``a \approx b``: only ``b`` if ``a`` is a name, else both; for any other text, the text itself."""
    first, *rest = [side.strip() for side in _APPROXIMATELY.split(text)]
    if not rest or len(split(text)) > 1:
        return [text]
    *named, value = sides(first)
    if not named and is_name(value) and letters(value):
        return rest[-1:]
    return [first, *rest]


def sides(text: str) -> list[str]:
    """The sides of an equation; the text itself if there is no equals sign.

    The equals sign in ``P(X=2)`` is part of the name, and those of ``cases`` are part of the value.
    """
    for inner in (_EVENT, _CASES):
        text = inner.sub(lambda found: found[0].replace("=", "\0"), text)
    return [side.strip().replace("\0", "=") for side in _EQUALS.split(text)]


def is_relation(text: str) -> bool:
    """Whether a text is a relation: an equation, an inequality, an approximation or a membership."""
    return len(sides(text)) > 1 or bool(_ORDER.search(text))


def is_solved(text: str) -> bool:
    """Whether each relation in a text has a name on one side and a side without variables: ``x = 2``, ``1 < x < 3``."""
    parts = re.split(r",? (?:or|and) |, ", _EVENT.sub("P", text))
    return all(map(_is_solved, filter(None, parts)))


def _is_solved(relation: str) -> bool:
    found = [side.strip() for side in _ORDER_OR_EQUAL.split(relation)]
    named = [bool(letters(side)) for side in found]
    return len(set(named)) == 2 and all(is_name(side) for side, is_named in zip(found, named, strict=True) if is_named)


def order_signs(text: str) -> int:
    """The number of relation signs other than equals signs."""
    return len(_ORDER.findall(text))


def letters(text: str) -> frozenset[str]:
    """The variables of a formula: all Latin and Greek letters except e and i; words are split into their letters."""
    found: set[str] = set()
    for name in _LETTER.findall(_COMMAND.sub(_keep_letters, _INDEX.sub("", text))):
        found |= {name} if name.startswith("\\") else set(name)
    return frozenset(found - _CONSTANTS)


def wanted_side(gold: str) -> str | None:
    """The value of a gold equation: its last side, if the first side is a name or there are no variables; else None."""
    first, *_, last = sides(gold)
    if is_name(first) or not letters(_FUNCTION_VALUE.sub("", gold)):
        return last
    return None


def value_sides(answer: str, gold: str) -> list[str] | None:
    """The sides of an answer that state a value; all of them must be correct. None for an unsolved one, ``x-1=5``.

    A name, ``f(x)``, does not state a value. Neither does a side with variables that the gold answer does not have:
    ``2a + b = 5``. The last side always counts.
    """
    *named, last = sides(answer)
    claimed = [side for side in named if not is_name(side)]
    if any(len(letters(side) - letters(gold)) == 1 and not _OF_AN_ANGLE.fullmatch(side) for side in claimed):
        return None
    return [*(side for side in claimed if not letters(side) - letters(gold)), last]


def same_numeric_equation(gold: str, answer: str) -> bool | None:
    r"""Whether two equations without variables have the same sides: ``\log_3 27 = 3`` is not ``\log_6 216 = 3``.

    None if one of them is not such an equation, or the gold answer has a number on every side.
    """
    wanted, given = sides(gold), sides(answer)
    if len(wanted) < 2 or len(given) < 2 or letters(gold) or letters(answer):
        return None
    if all(read_number(side) for side in wanted):
        return None  # 0.56 = 56% gives a number in two ways
    return sorted(map(_squeeze, wanted)) == sorted(map(_squeeze, given))


def same_name(gold: str, answer: str) -> bool:
    """Whether the first sides of two equations are the same up to blanks, braces and parentheses."""
    return _squeeze(sides(gold)[0]) == _squeeze(sides(answer)[0])


def in_variable_of(gold: str, answer: str) -> str:
    """Renames the variable of an answer ``f(x) = x + 1`` to that of a gold ``f(n) = n + 1``, since its name is free."""
    wanted, given = (_FUNCTION.fullmatch(sides(text)[0]) for text in (gold, answer))
    if not wanted or not given or wanted["name"] != given["name"] or wanted["variable"] in letters(answer):
        return answer
    return re.sub(rf"(?<![A-Za-z\\]){given['variable']}(?![A-Za-z])", wanted["variable"], answer)


def in_letters_of(gold: str, answer: str) -> str:
    r"""Renames the index of a sum and the constant of integration, ``+ c``, to those of the gold answer."""
    for pattern in (_BOUND, _OF_INTEGRATION):
        wanted, given = pattern.search(gold), pattern.search(answer)
        if wanted and given and (wanted["name"].isupper() or pattern is _BOUND):
            answer = _renamed(answer, given["name"], wanted["name"])
    return answer


def in_parameter_of(gold: Value, answer: Value) -> str:
    r"""Renames the one integer of an answer, ``n`` in ``n\pi, n \in \mathbb{Z}``, to that of the gold answer."""
    wanted, given = letters(gold.text), letters(answer.text)
    if not len(wanted - given) == len(given - wanted) == 1 or not _of_integers(gold) or not _of_integers(answer):
        return answer.text
    (old,), (new,) = given - wanted, wanted - given
    return _renamed(answer.text, old, new) if old in letters(answer.condition) else answer.text


def _of_integers(value: Value) -> bool:
    return value.domain == "Z" or "integer" in value.condition


def _renamed(text: str, old: str, new: str) -> str:
    """Renames a variable, unless the new name is in use; a text without the variable is unchanged."""
    if new in letters(text) | _CONSTANTS:
        return text
    return re.sub(rf"\\[A-Za-z]+|{re.escape(old)}", lambda part: new if part[0] == old else part[0], text)


def reorder(text: str) -> str:
    """Rewrites ``3 > x > -1`` as ``-1 < x < 3``; any other text is unchanged."""
    if _LESS.search(text) or not _GREATER.search(text) or r"\begin" in text:
        return text
    parts = re.split(rf"({_GREATER.pattern})", text)
    return " ".join(_TURNED.get(part, part.strip()) for part in reversed(parts))


def as_interval(text: str) -> str | None:
    r"""The interval of the one variable of an inequality, ``[-1, 3)`` for ``-1 \le x < 3``; None for another text."""
    parts = [part.strip() for part in re.split(rf"({_LESS.pattern})", reorder(text))]
    if len(parts) == 3:
        parts = [r"-\infty", "<", *parts] if letters(parts[0]) else [*parts, "<", r"\infty"]
    if len(parts) != 5 or not is_name(parts[2]) or letters(parts[0] + parts[4]):
        return None
    return f"{'(' if parts[1] == '<' else '['}{parts[0]}, {parts[4]}{')' if parts[3] == '<' else ']'}"


def as_union(text: str) -> str | None:
    r"""The union of intervals for ``x < 2 or x > 3`` or ``x \ne 2``; None for other texts."""
    if (but := _ALL_BUT.fullmatch(text)) and not letters(but["value"]):
        return rf"(-\infty, {but['value']}) \cup ({but['value']}, \infty)"
    parts = re.split(r",? or ", text)
    if len(parts) < 2 or len(frozenset().union(*map(letters, parts))) != 1:
        return None
    intervals = [as_interval(part.strip()) for part in parts]
    return r" \cup ".join(filter(None, intervals)) if all(intervals) else None


def at_constant(side: str) -> tuple[str, str] | None:
    r"""The name and the argument of ``g(\frac{\pi}{6})``; None if it is not a function of a constant."""
    found = _AT.fullmatch(side)
    return (found["name"], found["place"]) if found and not letters(found["place"]) else None


def is_name(side: str) -> bool:
    """Whether a side is a name: ``x``, ``f(x)``, ``f(2)``, ``m_{max}``, ``the area``."""
    return bool(_EVENT.fullmatch(side) or at_constant(side) or _NAME.fullmatch(_INDEX.sub("", side).strip()))


def _without_condition(text: str) -> tuple[str, str]:
    found = _CONDITION.match(text) if len(text) <= MAX_CONDITION * 3 else None
    if found is None:
        return text, ""
    condition = found["said"] or found["member"] or found["bracketed"]
    if len(condition) > MAX_CONDITION or _NO_CONDITION.search(condition) or not _IS_CONDITION.search(condition):
        return text, ""
    if read_words(found["value"].strip()) and re.search("[0-9]", condition):
        return text, ""  # "the rent for each A is 240"
    return found["value"].strip(), condition


def _squeeze(text: str) -> str:
    return re.sub(r"[ {}()]", "", text)


def _keep_letters(command: re.Match[str]) -> str:
    return command.group() + " " if _LETTER.fullmatch(command.group()) else " "
