"""The words of the stories: what each does to the numbers, and whether a warm start may say so.

A word is *taught* or *learnt*. A taught word is always shown with its meaning. A learnt word has the form of others
but is shown with a meaning drawn anew each time, so that only the outcome of an answer can tell what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Form = Literal["solo", "transfer", "scale", "asked"]
"""Who is in the sentence: one person; two; one whose whole amount changes; or it is the question about both."""
Meaning = Literal["gain", "lose", "nothing", "times", "share", "send", "receive", "sum", "difference"]

CHOICES: dict[str, tuple[Meaning, ...]] = {
    "solo": ("gain", "lose", "nothing"),
    "transfer": ("send", "receive", "nothing"),
    "scale": ("times", "share"),
    "asked": ("sum", "difference"),
}
"""What a word of each form may mean."""


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word of a story."""

    text: str
    form: Form
    meaning: Meaning
    taught: bool


def _words(form: Form, taught: dict[Meaning, str], learnt: dict[Meaning, str]) -> list[Word]:
    return [
        Word(text=text, form=form, meaning=meaning, taught=is_taught)
        for is_taught, listed in ((True, taught), (False, learnt))
        for meaning, texts in listed.items()
        for text in texts.split()
    ]


WORDS: MappingProxyType[str, Word] = MappingProxyType(
    {
        word.text: word
        for word in [
            *_words(
                "solo",
                {"gain": "finds gets", "lose": "loses drops", "nothing": "likes sees"},
                {
                    "gain": "buys wins bakes",
                    "lose": "eats sells burns",
                    "nothing": "paints counts",
                },
            ),
            *_words(
                "transfer",
                {"send": "gives", "receive": "robs", "nothing": "shows"},
                {
                    "send": "mails pays",
                    "receive": "charges taxes",
                    "nothing": "offers",
                },
            ),
            *_words("scale", {"times": "has", "share": "keeps"}, {}),
            *_words(
                "asked",
                {"sum": "total", "difference": "difference"},
                {"sum": "pool", "difference": "gap"},
            ),
        ]
    }
)
"""Every word by its text; no text has two forms."""

NAMES = ("Mia", "Tom", "Ann", "Ben", "Eva", "Leo", "Ida", "Max")
THINGS = ("figs", "pens", "hats", "nuts", "cups", "toys", "maps", "eggs")
NEW_NAMES = ("Liv", "Abe", "Rosa", "Otto", "Nina", "Hugo")
"""In no training story."""
NEW_THINGS = ("plums", "forks", "tiles", "drums")
"""In no training story."""


def words_of(form: Form, *, taught: bool) -> tuple[str, ...]:
    """The taught or the learnt words of a form, in a fixed order."""
    return tuple([word.text for word in WORDS.values() if word.form == form and word.taught == taught])
