r"""The plain spelling, one for the many notations of LaTeX: ``\dfrac34\text{ cm}.`` and ``\frac34 cm`` become equal.

Only details without meaning change: spacing, sizes of brackets, fonts, a full stop at the end. Text in ``\text{…}`` is
kept as words, so that the comparison sees everything that a completion states. For an answer in words (a name, a day,
True or False), capitals and a leading article do not matter.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from contrastive_reasoning.tasks.answer.collection import peel, split
from contrastive_reasoning.tasks.answer.extract import closing_brace
from contrastive_reasoning.tasks.answer.limits import group_end

LETTERS = 3
"""Maximum number of letters of a text that may be a product, ``CD``; a longer one is a word."""
MAX_WRAPS = 16
"""Maximum number of fonts, boxes and braces that are removed around or inside an answer."""

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu"
    " nu xi omicron pi rho sigma sigma tau upsilon phi chi psi omega"
)
_SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∞": r"\infty ",
        "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "⩽": r"\le ", "⩾": r"\ge ", "∪": r"\cup ", "∩": r"\cap ",
        "∈": r"\in ", "∉": r"\notin ", "±": r"\pm ", "∓": r"\mp ", "≈": r"\approx ", "≃": r"\approx ", "≡": r"\equiv ",
        "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
        "∠": r"\angle ", "△": r"\triangle ", "⟨": r"\langle ", "⟩": r"\rangle ", "⁄": "/", "∕": "/", "º": "°", "˚": "°",
        "ϕ": r"\phi ", "ϵ": r"\epsilon ", "Δ": r"\Delta ", "Σ": r"\Sigma ", "Ω": r"\Omega ", "Θ": r"\Theta ",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "€": "", "£": "", "¥": "", "₹": "",
        "’": "'", "′": "'", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "、": ", ",
        "元": " yuan ", "米": " m ", "个": " units ", "\u2062": r"\cdot ", **dict.fromkeys("‐‑‒—―－﹣", "-"),
        **{chr(0x3B1 + place): rf"\{name} " for place, name in enumerate(_GREEK.split())},
        **{chr(0x2460 + place): f", {place + 1}" for place in range(20)},
    }
)  # fmt: skip
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ"
_LOWERED = "₀₁₂₃₄₅₆₇₈₉₊₋₍₎"
_ON_THE_LINE = str.maketrans(_RAISED + _LOWERED, "0123456789+-()n" + "0123456789+-()")
_SCRIPTS = {"^": re.compile(f"[{_RAISED}]+"), "_": re.compile(f"[{_LOWERED}]+")}
_SMALL_FRACTION = re.compile(f"([{_RAISED}]+)⁄([{_LOWERED}]+)")
_VULGAR = re.compile(r"(?P<whole>[0-9]?)(?P<fraction>[¼-¾⅐-⅞])")
_ROOT_SIGN = re.compile(r"(?P<kind>[√∛]) ?(?P<of>\([^()]*\)|\{[^{}]*\}|[0-9]+(?:\.[0-9]+)?|[A-Za-z])?")
_NO_LETTER = r"(?![A-Za-z])"
_THOUSANDS = re.compile(r"(?<=[0-9])(?:,\s?\\!\s*|\{,\})(?=[0-9]{3})")
_BEHIND_EQUALS = re.compile(r"=\s*[0-9]{1,3}(?:,[0-9]{3})+(?!,?[0-9])")
_AMOUNT = r"[0-9][0-9,]*(?:\.[0-9]+)?(?:\s?(?:\\text\{\s?)?(?<![A-Za-z])(?:thousand|million|billion|trillion)s?\}?)?"
_MONEY = re.compile(
    rf"(?P<sign>\\\$|[£€¥₹]|(?:\\(?:text|mathrm)\{{ ?)?Rs\b\.? ?\}}?) ?(?P<amount>{_AMOUNT})(?=[\s$.)]*$)"
    rf"|(?P<before>{_AMOUNT}) ?(?P<behind>[£€¥₹])"
)
_CURRENCIES = {"\\$": "dollars", "£": "pounds", "€": "euros", "¥": "yen"}
"""The names of currencies by their signs; all others are rupees."""
_DELIMITERS = re.compile(r"\\?\$|(?<!\\)\\[()\[\]]")
_NOTHING = re.compile(
    r"(?<!\\)\\!"
    rf"|\\(?:m?left|m?right|[bB]igg?[lr]?|(?:display|text)style|limits|rm|bf|it){_NO_LETTER}\.?"
    rf"|\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge){_NO_LETTER}|\\(?:text)?color ?\{{[A-Za-z ]*\}}"
)
_BLANK = re.compile(rf"(?<!\\)\\[,;:> ]|\\(?:quad|qquad|enspace|space){_NO_LETTER}|~|\s+")
_SYNONYMS = {
    rf"\\[dtc]frac{_NO_LETTER}": r"\\frac",
    rf"\\[dt]binom{_NO_LETTER}": r"\\binom",
    rf"\{{ ?([^{{}}]*?) ?\\over{_NO_LETTER} ?([^{{}}]*?) ?\}}": r"\\frac{\1}{\2}",
    r" ?\^ ?\{? ?\\prime(?![A-Za-z]) ?\}?": "'",
    r"\*\* ?(?:\(([^()]*)\)|(-?[0-9A-Za-z]+))": r"^{\1\2}",
    r"\\dot ?\{?([0-9])\}?(?![0-9])": r"\\overline{\1}",
    r"(?<=\.)([0-9]*?)([0-9])\2{2,} ?(?:\\[lc]?dots(?![A-Za-z])|\.\.\.)": r"\1\\overline{\2}",
    r"\\\\ ?\[ ?-?[0-9.]+ ?(?:pt|em|ex|mm|cm) ?\]": r"\\\\",
    rf"\\(?:thickapprox|simeq){_NO_LETTER}": r"\\approx ",
    r"\{ ?\}(?= ?\^)": "",
    r"(?<=[0-9]) ?\^ ?(?:o|\{ ?o ?\})(?![A-Za-z])": "°",
    r"\.(?= ?[)\]]$)": "",
    rf"\\leq(?:slant|q)?{_NO_LETTER}|<=": r"\\le ",
    rf"\\geq(?:slant|q)?{_NO_LETTER}|>=": r"\\ge ",
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
    r"\\[hv]?phantom ?(?:\{[^{}]{0,20}\}|[-+0-9A-Za-z])": "",
    r"\\%": "%",
    rf"\s?\^\s?(?:\\(?:text)?circ{_NO_LETTER}|\{{\s?\\(?:text)?circ\s?\}})": "°",
    rf"(?:\^\s?)?\\(?:text)?degrees?{_NO_LETTER}": "°",
}
_SYNONYM = [(re.compile(pattern), words) for pattern, words in _SYNONYMS.items()]
_FONT = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|mbox|hbox|math(?:rm|bf|it|sf|tt)|operatorname|underline|boldsymbol|bm)\s*(?=\{)"
)
_EXP = re.compile(rf"\\?(?<![A-Za-z])exp{_NO_LETTER} ?(?:(?=[(\[{{])|(?P<of>[0-9]+|[A-Za-z]|\\[a-z]+))")
_FRACTION = re.compile(rf"\\(?:frac|binom){_NO_LETTER}")
_TOKEN = re.compile(r"\s*([0-9A-Za-z]|\\[A-Za-z]+)")
_ROOT_OF = re.compile(r"(\\sqrt(?: ?\[[^\[\]]*\])?) ?([0-9A-Za-z]|\\pi(?![A-Za-z]))")
_PLAIN_FRACTION = re.compile(r"^\\frac\{([0-9]+)\}\{([0-9]+)\}$")
_INDEX = re.compile(r" ?_ ?([0-9A-Za-z])")
_LONG_DATE = re.compile(r"([A-Z][a-z]{2,8} [0-9]{1,2}), ?(?=[0-9]{4}\b)")
_CLOCK = re.compile(r"(?<=[0-9])\s*([ap])\.?\s?m\b\.?", re.IGNORECASE)
_AROUND = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|(?=\{)")
_MARKED = re.compile(r"\s*(\*\*|__|`)(?P<inside>.+)\1\s*", re.DOTALL)
_MINUS = re.compile(r"^minus +(?=[0-9])", re.IGNORECASE)
_BEFORE = re.compile(
    r"^(?:(?:the (?:final )?answer is|about|approximately|around|roughly|exactly|only|just)\b(?: +(?=[^ ])|:)"
    rf"|\\(?:approx|sim|therefore|implies|[Rr]ightarrow|Longrightarrow|longrightarrow|iff|to){_NO_LETTER}|[=:])\s*",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"(?<=[0-9])(?: ?\^ ?\{ ?(?:st|nd|rd|th) ?\}| ?(?:st|nd|rd|th)(?![A-Za-z]))")
_FUNCTION = re.compile(r"(?<![A-Za-z\\])(?:arc)?(?:sin|cos|tan|cot|sec|csc|log|ln)(?![A-Za-z])")
_THOUSANDS_OF = re.compile(
    r"^([-+]? ?[0-9]{1,3}(?:,[0-9]{3})+)(?![0-9.])(?= ?(?:\\(?:pi|sqrt|cdot|times)|[A-Za-z])[^,;]*$)"
)
_ELEMENT = re.compile(r"^[A-Za-z](?:_[0-9A-Za-z])? ?\\in(?![A-Za-z]) ?")
_NEUTRAL = re.compile(r"^1 ?(?:\\cdot|\\times)(?![A-Za-z]) ?| ?\+ ?0$")
_BETWEEN_DIGITS = re.compile(r"(?<![0-9]) | (?![0-9])")
_CONDITION = re.compile(r"[<>|:=]|\\(?:mid|vert|le|ge|ne|in)(?![A-Za-z])")
"""A sign of a condition in a set, whose parts have an order."""
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’.-]*(?: [A-Za-z'’][A-Za-z'’.-]*)*|[A-Za-z]{3,}(?: [0-9A-Za-z]+)+")
_DIFFERENCE = re.compile("[a-z]{1,3}-[a-z]{2,3}|[a-z]{2,3}-[a-z]")
_ARTICLE = re.compile(r"(?:the|an?) (?=[a-z]{2})")
_TRUTH = {"yes": "true", "no": "false"}


def plain(text: str) -> str:
    """Converts a text, usually of at most ``extract.MAX_ANSWER`` characters, to the plain spelling."""
    marked = _MARKED.fullmatch(text)
    text = _THOUSANDS.sub("", _in_ascii(_MONEY.sub(_money, marked["inside"] if marked else text)))
    text = _BEHIND_EQUALS.sub(lambda number: number[0].replace(",", ""), text)
    for pattern, words in _SYNONYM:
        text = pattern.sub(words, text)
    text = _add_braces(_without_fonts(_BLANK.sub(" ", _NOTHING.sub("", _DELIMITERS.sub("", text)))))
    text = _FUNCTION.sub(r"\\\g<0>", _ORDINAL.sub("", _exponentials(text)))
    text = _LONG_DATE.sub(r"\1 ", text)
    return _trim(_CLOCK.sub(lambda clock: f" {clock[1].lower()}m", text))


def _exponentials(text: str) -> str:
    r"""Writes ``\exp(x)`` as ``e^{x}``."""
    for _ in range(MAX_WRAPS):
        found = _EXP.search(text)
        if found is None:
            break
        end = found.end() + (group_end(text[found.end() :]) if found["of"] is None else 0)
        inside = found["of"] or text[found.end() + 1 : end - 1]
        text = f"{text[: found.start()]}e^{{{inside}}}{text[end:]}"
    return text


def _in_ascii(text: str) -> str:
    """Converts Unicode characters to LaTeX or ASCII: ``2√3``, ``x⁴``, ``⅓``, ``α``, full-width digits."""
    if text.isascii():
        return text
    # small fractions first: their raised and lowered digits are no exponent and no index
    text = _SMALL_FRACTION.sub(lambda found: rf"\frac{{{found[1]}}}{{{found[2]}}}".translate(_ON_THE_LINE), text)
    for command, scripts in _SCRIPTS.items():
        text = scripts.sub(lambda found: f"{command}{{{found[0].translate(_ON_THE_LINE)}}}", text)  # noqa: B023
    text = _VULGAR.sub(lambda found: f"{found['whole']}{_vulgar(found['fraction'])}", text)
    text = _ROOT_SIGN.sub(_root, text).translate(_SIGNS)
    return "".join(sign for sign in unicodedata.normalize("NFKC", text) if unicodedata.category(sign) != "Cf")


def _money(found: re.Match[str]) -> str:
    currency = _CURRENCIES.get(found["sign"] or found["behind"], "rupees")
    return f"{found['amount'] or found['before']} {currency}"


def _vulgar(sign: str) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", sign).partition("⁄")
    return rf"\frac{{{top}}}{{{bottom or '1'}}}"


def _root(found: re.Match[str]) -> str:
    kind = r"\sqrt" if found["kind"] == "√" else r"\sqrt[3]"
    return kind + (f"{{{found['of'].strip('(){}')}}}" if found["of"] else "")


def compact(text: str) -> str:
    """Removes blanks, except between two digits, where they distinguish ``1 1/2`` from ``11/2``."""
    return _BETWEEN_DIGITS.sub("", text)


def bare(text: str) -> str:
    r"""Removes a leading ``x \in``, brackets around a single value, and a neutral 0 or 1.

    Also removes the commas between the digits of a factor, ``1,600\pi``.
    """
    text = _THOUSANDS_OF.sub(lambda number: number[1].replace(",", ""), text)
    text = _NEUTRAL.sub("", text) or text
    for _ in range(MAX_WRAPS):
        text = _ELEMENT.sub("", text)
        inside, brackets = peel(text)
        if not brackets or len(split(inside)) > 1 or not inside:
            break
        text = inside
    return text


def respell(text: str) -> str:
    r"""Writes a text in another way: blanks around signs, ``1/2`` for ``\frac{1}{2}``, a set in reversed order."""
    if _PLAIN_FRACTION.match(text):
        return _PLAIN_FRACTION.sub(r"\1/\2", text)
    if re.fullmatch(r"[-+0-9.,e]+|[A-Za-z' -]+", text):
        return text
    inside, brackets = peel(text)
    if brackets == r"\{\}" and not _CONDITION.search(inside):
        text = rf"\{{{', '.join(reversed(split(inside)))}\}}"
    return re.sub(r"(?<=[0-9A-Za-z})]) ?([-+=]) ?(?=[0-9A-Za-z\\{(])", r" \1 ", text)


def read_words(text: str) -> str | None:
    """Returns a text in plain spelling in lower case, without a leading article, if it consists of words; else None."""
    if not _WORDS.fullmatch(text) or (_DIFFERENCE.fullmatch(text) and all(map(is_product, text.split("-")))):
        return None
    words = _ARTICLE.sub("", text.lower(), count=1).strip(". ")
    return words.strip("'") if len(words) > 3 else words  # x' is not x


def is_product(text: str) -> bool:
    """Whether a text is a product of variables, in which the order of the letters does not matter: ``mn``, ``abc``.

    Its letters are consonants or follow each other in the alphabet. Any other text, ``cat``, may be a word.
    """
    follow = all(ord(b) - ord(a) == 1 for a, b in pairwise(sorted(text)))
    letters = text.isascii() and text.islower() and text.isalpha() and len(text) <= LETTERS and text not in ("no", "on")
    return letters and (follow or not set(text) & set("aeiou"))


def same_words(gold: str, answer: str) -> bool:
    """Whether two results of ``read_words`` are the same; yes and no also match a gold True and False.

    The plural, and the order around ``and``, do not matter.
    """
    if gold in _TRUTH.values():
        answer = _TRUTH.get(answer, answer)
    wanted, given = (sorted(word.removesuffix("s") for word in re.split(" and ", words)) for words in (gold, answer))
    return wanted == given


def _trim(text: str) -> str:
    """Removes the surroundings of an answer: blanks, a full stop, braces, a second box, a leading ``=`` or ``≈``."""
    for _ in range(MAX_WRAPS):
        before = text
        text = text.strip().rstrip(".,;:\\ ").strip()
        text = _MINUS.sub("-", _BEFORE.sub("", text))
        wrap = _AROUND.match(text)
        if wrap and closing_brace(text[wrap.end() :]) == len(text) - wrap.end() - 1:
            text = text[wrap.end() + 1 : -1]
        if text == before:
            break
    return re.sub(" +", " ", text)


def _without_fonts(text: str) -> str:
    r"""Replaces ``\text{ cm}`` and similar commands by their content with a blank on both sides."""
    for _ in range(MAX_WRAPS):
        font = _FONT.search(text)
        end = closing_brace(text[font.end() :]) if font else -1
        if font is None or end < 0:
            break
        text = f"{text[: font.start()]} {text[font.end() + 1 : font.end() + end]} {text[font.end() + end + 1 :]}"
    return text


def _add_braces(text: str) -> str:
    r"""Adds the braces that TeX implies in ``\frac12`` and ``\sqrt2``: ``\frac{1}{2}``, ``\sqrt{2}``."""
    text = _INDEX.sub(r"_{\1}", _ROOT_OF.sub(r"\1{\2}", text))
    for fraction in reversed(list(_FRACTION.finditer(text))):
        head, tail = text[: fraction.end()].rstrip(), text[fraction.end() :]
        for _ in range(2):
            tail = _TOKEN.sub(r"{\1}", tail, count=1) if _TOKEN.match(tail) else tail.lstrip()
            end = closing_brace(tail) + 1 if tail.startswith("{") else 0
            head, tail = head + tail[:end], tail[end:]
        text = head + tail
    return text
