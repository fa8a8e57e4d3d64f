"""The page of tokens and advantages, read back as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from callbacks.completions import mixed
from callbacks.credit import Trace, credit_page
from callbacks.figures import colour

HOSTILE = "<script>alert(1)</script> \" onmouseover='x' &lt; </pre></span>"


class Page(HTMLParser):
    """What is on a page: the tags, and of each token its text, colour and title."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.tokens: list[list[str]] = []
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag == "span"
        if self._inside:
            named = dict(attrs)
            assert set(named) == {"style", "title"}
            self.tokens.append(["", (named["style"] or "").removeprefix("background:"), named["title"] or ""])

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "span"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.tokens[-1][0] += data


def trace(tokens: list[str], advantages: list[float], text: str = "wrong") -> Trace:
    return Trace(heading=text, numbers={"reward": 1.0}, prompt=text, tokens=tokens, advantages=advantages)


def test_each_token_has_its_text_its_colour_and_its_number() -> None:
    page = Page(credit_page([trace(["21", "+", " 16"], [-2.0, 0.0, 1.0])], step=3, longest=9))
    assert page.tokens == [["21", "#e49659", "−2"], ["+", "#ffffff", "0"], [" 16", "#acd1e6", "+1"]]


def test_colours_are_one_scale_for_all_completions_and_the_legend_names_its_ends() -> None:
    text = credit_page([trace(["a"], [0.5]), trace(["b"], [-4.0])], step=1, longest=9)
    assert Page(text).tokens[0][1] == colour(0.5, 4.0)
    assert all(f">{number}</b>" in text for number in ("−4", "−2", "0", "+2", "+4"))


def test_what_was_written_is_never_markup() -> None:
    hostile = Page(credit_page([trace([HOSTILE], [1.0], text=HOSTILE)], step=1, longest=9))
    tame = Page(credit_page([trace(["a"], [1.0])], step=1, longest=9))
    assert hostile.tags == tame.tags
    assert hostile.tokens[0][0] == HOSTILE


def test_a_long_completion_is_cut_and_says_so() -> None:
    text = credit_page([trace(["a"] * 12, [1.0] * 12, text="p" * 100)], step=1, longest=10)
    assert len(Page(text).tokens) == 10
    assert "2 more tokens" in text
    assert "p" * 40 + "<" in text


def test_where_nothing_was_taught_no_scale_is_shown() -> None:
    text = credit_page([trace(["a"], [0.0])], step=1, longest=9)
    assert "All advantages are 0" in text
    assert Page(text).tokens == [["a", "#ffffff", "0"]]


def test_as_many_advantages_as_tokens() -> None:
    with pytest.raises(ValueError, match="2 tokens has 1 advantages"):
        trace(["a", "b"], [1.0])


@pytest.mark.parametrize(
    ("correct", "count", "rows"),
    [
        ([True, True, True, False, False, False], 4, [0, 1, 3, 4]),
        ([False] * 8, 4, [0, 2, 4, 6]),
        ([False] * 5 + [True], 4, [0, 1, 3, 5]),
        ([True, False], 9, [0, 1]),
        ([], 3, []),
    ],
)
def test_both_kinds_are_chosen_where_there_are_both(correct: list[bool], count: int, rows: list[int]) -> None:
    assert mixed(correct, count) == rows
