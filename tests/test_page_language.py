"""Pages meet the limits on words and sentences, and records of studies have a fixed form."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.page_language import ROOT, Limits, complaints, excess, limits, paragraphs, sentences, text_of, words

RECORD = ["Question", "Set-up", "Table", "Verdict", "What went wrong or is limited", "Commands", "Commit"]
RESULTS = ROOT / "docs" / "results"
RECORDS = sorted({*RESULTS.glob("*.md")} - {RESULTS / "conventions.md", RESULTS / "overview.md"})
ALL: dict[str, Any] = {"total": 1000, "not_in_total": (), "checked": ()}
PAGE = """# A heading of five words

One sentence has `a lot of code` in it. Another, e.g. this one, gained +5.3 ± 2.8 points
over [GRPO](https://example.org/a/b.html).

```sh
make exp name=llama_critic    # not a sentence. Nor this.
```

| a | table |
|---|---|

- First item, without a full stop
- **Second item.** It has two sentences!
  `code` starts a third.
"""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_page_is_within_its_limits() -> None:
    limit = limits()
    texts = {name_of(path): text_of(path) for path in limit.pages()}
    assert [line for name, text in texts.items() for line in complaints(name, text, limit)] == []
    assert excess(texts, limit) == []


def test_study_records_have_sections_in_order() -> None:
    parts = {name_of(path): re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.M) for path in RECORDS}
    assert parts == dict.fromkeys(parts, RECORD)


def test_words_and_sentences_are_counted() -> None:
    assert [words(sentence) for sentence in sentences(PAGE)] == [6, 10, 6, 2, 4, 4]
    assert sum(words(text) for _, text in paragraphs(PAGE)) == 5 + 32


def test_complaints_name_each_exceeded_limit() -> None:
    limit = Limits(mean=5, longest=9, words={"a.md": 36}, **ALL)
    assert complaints("a.md", PAGE, limit) == [
        "a.md: 37 words, at most 36",
        "a.md: 5.3 words a sentence, at most 5",
        "a.md: 10 words, at most 9: Another, e.g this one, gained +5.3 ± 2.8 points over GRPO.",
    ]
    assert complaints("b.md", PAGE, Limits(mean=6, longest=10, words={"a.md": 1}, **ALL)) == []


def test_pages_together_are_within_their_limit() -> None:
    limit = Limits(mean=18, longest=35, words={}, total=73, not_in_total=("docs/results/*.md",), checked=())
    pages = {"a.md": PAGE, "docs/b.md": PAGE, "docs/results/c.md": PAGE}
    assert excess(pages, limit) == ["2 pages together: 74 words, at most 73"]
    assert excess(pages, replace(limit, total=74)) == []


def test_pattern_without_pages_raises() -> None:
    with pytest.raises(ValueError, match=r"tests/cases/pages\.yaml: docs/gone\.md matches no page"):
        replace(Limits(mean=18, longest=35, words={}, **ALL), checked=("docs/gone.md",)).pages()
