"""Counts the words of Markdown pages and measures the length of their sentences.

    python -m tests.page_language [PAGE …]      one row per page (default: all), and each sentence that is too long

Fenced code, tables, formulas, HTML, pictures and the targets of links are left out; code within a sentence is one word.
The limits are in ``tests/cases/pages.yaml``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

import yaml

ROOT = Path(__file__).resolve().parent.parent
LIMITS_FILE = ROOT / "tests" / "cases" / "pages.yaml"
LEFT_OUT = (
    re.compile(r"^ *(?P<fence>`{3,}).*?^ *(?P=fence)$", re.M | re.S),
    re.compile(r"<!--.*?-->", re.S),
    re.compile(r"\$\$.*?\$\$", re.S),
    re.compile(r"^\s*\|.*$", re.M),
    re.compile(r"!\[[^\]]*\]\([^)]*\)(\{[^}]*\})?"),
    re.compile(r"</?[a-zA-Z][^>]*>"),
)
CODE = re.compile(r"(?<!\$)\$[^$\n]+\$|`[^`]+`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
BLOCK_START = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+|^\s*(?=#)|^\s*>\s?")
SENTENCE_END = re.compile(r"(?<=[.!?])[*_)\"]*\s+(?=[*_(\"]*[^\Wa-z])|(?<=[.!?])[*_)\"]*\s+(?=[*_]*code\b)")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|Eq|Eqs|al|cf|approx)\.")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """mean, longest: words per sentence; words: page → most words; checked: patterns of pages to check.

    total: most words of all checked pages together, without those that match a pattern of ``not_in_total``.
    """

    mean: float
    longest: int
    words: dict[str, int]
    total: int
    not_in_total: tuple[str, ...]
    checked: tuple[str, ...]

    def pages(self) -> list[Path]:
        """Returns the pages to check. Raises ValueError if a pattern matches none."""
        found: set[Path] = set()
        for pattern in (*self.checked, *self.words):
            matched = [*ROOT.glob(pattern)]
            if not matched:
                raise ValueError(f"{LIMITS_FILE.relative_to(ROOT)}: {pattern} matches no page")
            found.update(matched)
        return sorted(found)


def text_of(path: Path) -> str:
    """Returns the text of a page; of a notebook, the text of its Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def limits() -> Limits:
    content = yaml.safe_load(LIMITS_FILE.read_text(encoding="utf-8"))
    total, without = content["total"]["words"], tuple(content["total"]["without"])
    checked = tuple(content["checked"])
    return Limits(**content["sentences"], words=content["words"], total=total, not_in_total=without, checked=checked)


def words(text: str) -> int:
    """Counts words, including numbers, but not signs alone."""
    return sum(any(letter.isalnum() for letter in token) for token in text.split())


def paragraphs(page: str) -> Iterator[tuple[bool, str]]:
    """Yields paragraphs, list items and headings: whether it is a heading, and its text on one line."""
    for pattern in LEFT_OUT:
        page = pattern.sub("\n", page)
    page = LINK.sub(r"\1", CODE.sub("code", page))
    kept: list[str] = []
    for line in [*page.splitlines(), ""]:
        starts = BLOCK_START.match(line)
        if kept and (starts or not line.strip() or kept[0].startswith("#")):
            text = " ".join(kept)
            yield text.startswith("#"), text.lstrip("# ")
            kept = []
        if line.strip():
            kept.append(line[starts.end() :] if starts else line.strip())


def sentences(page: str) -> list[str]:
    """Returns the sentences of a page, without headings. One ends at . ! or ? before a capital, a digit or code."""
    texts = [ABBREVIATION.sub(r"\1", text) for heading, text in paragraphs(page) if not heading]
    found = [part.strip() for text in texts for part in SENTENCE_END.split(text)]
    return [sentence for sentence in found if words(sentence)]


def words_of_page(page: str) -> int:
    return sum(words(text) for _, text in paragraphs(page))


def excess(pages: Mapping[str, str], limit: Limits) -> list[str]:
    """Returns one line if the pages (name → text) have more words together than ``limit.total``."""
    counted = [
        text for name, text in pages.items() if not any(PurePath(name).match(each) for each in limit.not_in_total)
    ]
    total = sum(map(words_of_page, counted))
    return [f"{len(counted)} pages together: {total} words, at most {limit.total}"] if total > limit.total else []


def complaints(name: str, page: str, limit: Limits) -> list[str]:
    """Returns one line for each limit that a page exceeds."""
    found = []
    total = words_of_page(page)
    lengths = {sentence: words(sentence) for sentence in sentences(page)}
    mean = sum(lengths.values()) / max(len(lengths), 1)
    if total > limit.words.get(name, total):
        found.append(f"{name}: {total} words, at most {limit.words[name]}")
    if mean > limit.mean:
        found.append(f"{name}: {mean:.1f} words a sentence, at most {limit.mean}")
    long = {sentence: length for sentence, length in lengths.items() if length > limit.longest}
    return found + [f"{name}: {length} words, at most {limit.longest}: {sentence}" for sentence, length in long.items()]


def main(names: list[str]) -> None:
    limit = limits()
    docs = ROOT / "docs"
    every = [*sorted(ROOT.glob("*.md")), *sorted(docs.rglob("*.md")), *docs.glob("*.ipynb")]
    for path in [Path(name).resolve() for name in names] or every:
        page = text_of(path)
        lengths = [words(sentence) for sentence in sentences(page)] or [0]
        total = words_of_page(page)
        name = path.relative_to(ROOT).as_posix()
        print(f"{total:6d} words  {sum(lengths) / len(lengths):5.1f} a sentence  {max(lengths):4d} longest  {name}")
        if names:
            print(*complaints(name, page, limit), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
