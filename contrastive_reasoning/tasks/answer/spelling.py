r"""One spelling for what LaTeX writes in many ways: ``\dfrac34\text{ cm}.`` and ``\frac34 cm`` become the same text.

Only what a reader would not notice is changed: spacing, sizes of brackets, fonts, a full stop at the end. Text that is
set with ``\text{…}`` stays as words, so that nothing a completion states is lost on the way to the comparison. Of an
answer in words (a name, a day, True or False) capitals and an article before it do not matter.
"""

from __future__ import annotations

import re

from contrastive_reasoning.tasks.answer.collection import peel, split
from contrastive_reasoning.tasks.answer.extract import closing_brace

MAX_WRAPS = 16
"""Fonts, boxes and braces that are taken off around or inside of an answer."""

_SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ",
        "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ",
        "≈": r"\approx ", "∅": r"\emptyset ", "θ": r"\theta ", "²": "^2", "³": "^3", "½": r"\frac12", "¼": r"\frac14",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "€": "", "£": "",
    }
)  # fmt: skip
_NO_LETTER = r"(?![A-Za-z])"
_THOUSANDS = re.compile(r"(?<=[0-9])(?:,\s?\\!\s*|\{,\})(?=[0-9]{3})")
_BEHIND_EQUALS = re.compile(r"=\s*[0-9]{1,3}(?:,[0-9]{3})+(?!,?[0-9])")
_DELIMITERS = re.compile(r"\\?\$|(?<!\\)\\[()\[\]]")
_NOTHING = re.compile(
    r"(?<!\\)\\!"
    rf"|\\(?:m?left|m?right|[bB]igg?[lr]?|(?:display|text)style|limits|rm|bf|it){_NO_LETTER}\.?"
    rf"|\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge){_NO_LETTER}|\\(?:text)?color ?\{{[A-Za-z ]*\}}"
)
_BLANK = re.compile(rf"(?<!\\)\\[,;:> ]|\\(?:quad|qquad|enspace|space){_NO_LETTER}|~|\s+")
_SYNONYMS = {
    rf"\\[dtc]frac{_NO_LETTER}": r"\\frac",
    rf"\\leq(?:slant)?{_NO_LETTER}|<=|\\leqq{_NO_LETTER}": r"\\le ",
    rf"\\geq(?:slant)?{_NO_LETTER}|>=|\\geqq{_NO_LETTER}": r"\\ge ",
    rf"\\neq{_NO_LETTER}|!=": r"\\ne ",
    rf"\\lt{_NO_LETTER}": "<",
    rf"\\gt{_NO_LETTER}": ">",
    rf"\\lbrace{_NO_LETTER}": r"\\{",
    rf"\\rbrace{_NO_LETTER}": r"\\}",
    rf"\\varnothing{_NO_LETTER}": r"\\emptyset ",
    rf"\\(?:lor|vee){_NO_LETTER}": " or ",
    r"(?<![A-Za-z\\])sqrt ?\(([^()]*)\)": r"\\sqrt{\1}",
    r"(?<![A-Za-z\\])pi(?![A-Za-z])": r"\\pi ",
    r"\^ ?\(([^()]*)\)": r"^{\1}",
    r"\\[hv]?phantom ?(?:\{ ?[-+0]? ?\}|[-+])": "",
    r"\\%": "%",
    rf"\s?\^\s?(?:\\circ{_NO_LETTER}|\{{\s?\\circ\s?\}})|\\degree{_NO_LETTER}": "°",
}
_SYNONYM = [(re.compile(pattern), words) for pattern, words in _SYNONYMS.items()]
_FONT = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|mbox|hbox|math(?:rm|bf|it|sf|tt)|operatorname|boldsymbol|bm)\s*(?=\{)"
)
_FRACTION = re.compile(rf"\\(?:frac|binom){_NO_LETTER}")
_TOKEN = re.compile(r"\s*([0-9A-Za-z]|\\[A-Za-z]+)")
_ROOT_OF = re.compile(r"(\\sqrt(?: ?\[[^\[\]]*\])?) ?([0-9A-Za-z]|\\pi(?![A-Za-z]))")
_INDEX = re.compile(r" ?_ ?([0-9A-Za-z])")
_CLOCK = re.compile(r"(?<=:[0-9]{2})\s*([ap])\.?\s?m\b\.?", re.IGNORECASE)
_AROUND = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|(?=\{)")
_BEFORE = re.compile(rf"(?:\\(?:approx|sim|therefore|implies){_NO_LETTER}|[=:])\s*")
_THOUSANDS_OF = re.compile(
    r"^([-+]? ?[0-9]{1,3}(?:,[0-9]{3})+)(?![0-9.])(?= ?(?:\\(?:pi|sqrt|cdot|times)|[A-Za-z])[^,;]*$)"
)
_ELEMENT = re.compile(r"[A-Za-z](?:_[0-9A-Za-z])? ?\\in(?![A-Za-z]) ?")
_NEUTRAL = re.compile(r"^1 ?(?:\\cdot|\\times)(?![A-Za-z]) ?| ?\+ ?0$")
_BETWEEN_DIGITS = re.compile(r"(?<![0-9]) | (?![0-9])")
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’.-]*(?: [A-Za-z'’][A-Za-z'’.-]*)*|[A-Za-z]{3,}(?: [0-9A-Za-z]+)+")
_ARTICLE = re.compile(r"(?:the|an?) (?=[a-z]{2})")
_TRUTH = {"yes": "true", "no": "false"}


def plain(text: str) -> str:
    """The text in the one spelling that is compared; at most as long as what is read, ``extract.MAX_ANSWER``."""
    text = _THOUSANDS.sub("", text.translate(_SIGNS))
    text = _BEHIND_EQUALS.sub(lambda number: number[0].replace(",", ""), text)
    for pattern, words in _SYNONYM:
        text = pattern.sub(words, text)
    text = _BLANK.sub(" ", _NOTHING.sub("", _DELIMITERS.sub("", text)))
    return _trim(_CLOCK.sub(lambda clock: f" {clock[1].lower()}m", _braced(_without_fonts(text))))


def compact(text: str) -> str:
    """Without blanks, except between two digits, where they tell ``1 1/2`` from ``11/2``."""
    return _BETWEEN_DIGITS.sub("", text)


def bare(text: str) -> str:
    r"""Without ``x \in`` before it, a remark ``≈ 0.67`` behind it, brackets around one value, a neutral 0 or 1.

    Commas between the digits of a factor, ``1,600\pi``, go, too.
    """
    text = text.partition(r"\approx")[0].strip() or text
    text = _THOUSANDS_OF.sub(lambda number: number[1].replace(",", ""), text)
    text = _NEUTRAL.sub("", text) or text
    for _ in range(MAX_WRAPS):
        text = text[_width(_ELEMENT, text) :]
        inside, brackets = peel(text)
        if not brackets or len(split(inside)) > 1 or not inside:
            break
        text = inside
    return text


def read_words(text: str) -> str | None:
    """The words that a text in its plain spelling is, in small letters, or None if it is more than words."""
    if not _WORDS.fullmatch(text):
        return None
    return _ARTICLE.sub("", text.lower(), count=1).strip(".' ")


def same_words(gold: str, answer: str) -> bool:
    """Whether two readings are the same; to a gold True or False, yes and no are answers too."""
    if gold in _TRUTH.values():
        answer = _TRUTH.get(answer, answer)
    return gold == answer


def _trim(text: str) -> str:
    """Without what stands around an answer: blanks, a full stop, braces, a second box, ``=`` or ``≈`` before it."""
    for _ in range(MAX_WRAPS):
        before = text
        text = text.strip().rstrip(".,;:\\ ").strip()
        text = text[_width(_BEFORE, text) :]
        wrap = _AROUND.match(text)
        if wrap and closing_brace(text[wrap.end() :]) == len(text) - wrap.end() - 1:
            text = text[wrap.end() + 1 : -1]
        if text == before:
            break
    return re.sub(" +", " ", text)


def _without_fonts(text: str) -> str:
    r"""``\text{ cm}`` and the like as plain words with a blank on both sides."""
    for _ in range(MAX_WRAPS):
        font = _FONT.search(text)
        end = closing_brace(text[font.end() :]) if font else -1
        if font is None or end < 0:
            break
        text = f"{text[: font.start()]} {text[font.end() + 1 : font.end() + end]} {text[font.end() + end + 1 :]}"
    return text


def _braced(text: str) -> str:
    r"""``\frac12`` and ``\sqrt2`` with the braces that TeX thinks in: ``\frac{1}{2}``, ``\sqrt{2}``."""
    text = _INDEX.sub(r"_{\1}", _ROOT_OF.sub(r"\1{\2}", text))
    for fraction in reversed(list(_FRACTION.finditer(text))):
        head, tail = text[: fraction.end()].rstrip(), text[fraction.end() :]
        for _ in range(2):
            tail = _TOKEN.sub(r"{\1}", tail, count=1) if _TOKEN.match(tail) else tail.lstrip()
            end = closing_brace(tail) + 1 if tail.startswith("{") else 0
            head, tail = head + tail[:end], tail[end:]
        text = head + tail
    return text


def _width(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.match(text)
    return match.end() if match else 0
