"""Stories, their words, and the plan that answers a story: the equations from its numbers to the answer.

Mia has 5 figs. Tom has 3 more. Mia buys 4. Tom mails Mia 2. How many has Mia?      buys 5+4=9, mails 9+2=11

A word is *taught* or *learnt*. A taught word is always shown with its meaning. A learnt word has the same form, but the
meaning shown with it is drawn anew each time. Its true meaning can be inferred only from the outcomes of answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from contrastive_reasoning.tasks.arithmetic.equations import Equation

Form = Literal["solo", "transfer", "scale", "asked"]
"""The participants: one person; two persons; one person whose whole amount changes; or the question about both."""
Meaning = Literal["gain", "lose", "nothing", "times", "share", "send", "receive", "sum", "difference"]

CHOICES: dict[str, tuple[Meaning, ...]] = {
    "solo": ("gain", "lose", "nothing"),
    "transfer": ("send", "receive", "nothing"),
    "scale": ("times", "share"),
    "asked": ("sum", "difference"),
}
"""The possible meanings of a word, by form."""
_LEXICON: list[tuple[Form, bool, dict[Meaning, str]]] = [
    ("solo", True, {"gain": "finds gets", "lose": "loses drops", "nothing": "likes sees"}),
    ("solo", False, {"gain": "buys wins bakes", "lose": "eats sells burns", "nothing": "paints counts"}),
    ("transfer", True, {"send": "gives", "receive": "robs", "nothing": "shows"}),
    ("transfer", False, {"send": "mails pays", "receive": "charges taxes", "nothing": "offers"}),
    ("scale", True, {"times": "has", "share": "keeps"}),
    ("asked", True, {"sum": "total", "difference": "difference"}),
    ("asked", False, {"sum": "pool", "difference": "gap"}),
]
"""Entries of form, whether taught, and a map from meaning to words."""
NAMES = ("Mia", "Tom", "Ann", "Ben", "Eva", "Leo", "Ida", "Max")
THINGS = ("figs", "pens", "hats", "nuts", "cups", "toys", "maps", "eggs")
NEW_NAMES = ("Liv", "Abe", "Rosa", "Otto", "Nina", "Hugo")
"""Names that occur in no training story."""
NEW_THINGS = ("plums", "forks", "tiles", "drums")
"""Things that occur in no training story."""

Opening = Literal["alone", "plain", "more", "fewer", "times"]
"""The statement about the second person: none, a number, or a comparison with the first person."""
_OPENINGS = {
    "plain": "{b} has {n}.",
    "more": "{b} has {n} more.",
    "fewer": "{b} has {n} fewer.",
    "times": "{b} has {n} times that.",
}
_RELATIONS = {"more": "+", "fewer": "-", "times": "*"}
_SENTENCES = {
    "solo": "{p} {word} {n}.",
    "transfer": "{p} {word} {q} {n}.",
    "times": "{p} now {word} {n} times that.",
    "share": "{p} {word} one in {n}.",
}
_EFFECTS: Mapping[str, tuple[str, str]] = {
    "gain": ("+", ""),
    "lose": ("-", ""),
    "nothing": ("", ""),
    "times": ("*", ""),
    "share": ("/", ""),
    "send": ("-", "+"),
    "receive": ("+", "-"),
}
"""Maps a meaning to the operation on the acting person's amount and the operation on the other person's amount."""


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word of a story."""

    text: str
    form: Form
    meaning: Meaning
    taught: bool


WORDS = MappingProxyType(
    {
        text: Word(text=text, form=form, meaning=meaning, taught=taught)
        for form, taught, words in _LEXICON
        for meaning, texts in words.items()
        for text in texts.split()
    }
)
"""Every word by its text; no text has two forms."""


def words_of(form: Form, *, taught: bool) -> tuple[str, ...]:
    """The taught or the learnt words of a form, in a fixed order."""
    return tuple([word.text for word in WORDS.values() if word.form == form and word.taught == taught])


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One event of a story."""

    word: str
    person: int
    """0 or 1: who acts."""
    number: int


@dataclass(frozen=True, kw_only=True)
class Story:
    """Two persons with amounts of one thing, a series of events, and a question."""

    names: tuple[str, str]
    thing: str
    start: int
    """How many the first person has."""
    opening: Opening
    second: int
    """The number stated about the second person; 0 for ``alone``."""
    clauses: tuple[Clause, ...]
    asked: int | str
    """0 or 1 asks for the amount of that person; a word asks about both."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers written in the story, in order."""
        second = () if self.opening == "alone" else (self.second,)
        return (self.start, *second, *[clause.number for clause in self.clauses])

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the lexicon in the story, in order."""
        return (*[clause.word for clause in self.clauses], *([self.asked] if isinstance(self.asked, str) else []))

    @property
    def situation(self) -> str:
        """The story without names, things and question. It determines the split."""
        clauses = [f"{clause.person} {clause.word} {clause.number}" for clause in self.clauses]
        return "; ".join([f"{self.start} {self.opening} {self.second}", *clauses])

    @property
    def key(self) -> str:
        """The situation and the question, which together identify the problem."""
        return f"{self.situation}; {self.asked}?"

    @property
    def text(self) -> str:
        """The text for the policy, on one line."""
        a, b = self.names
        said = [f"{a} has {self.start} {self.thing}."]
        if self.opening != "alone":
            said.append(_OPENINGS[self.opening].format(b=b, n=self.second))
        said += [self._sentence(clause) for clause in self.clauses]
        asked = f"the {self.asked}" if isinstance(self.asked, str) else self.names[self.asked]
        said.append(f"What is {asked}?" if isinstance(self.asked, str) else f"How many has {asked}?")
        return " ".join(said) + "\n"

    def _sentence(self, clause: Clause) -> str:
        word = WORDS[clause.word]
        form = _SENTENCES[word.meaning if word.form == "scale" else word.form]
        p, q = self.names[clause.person], self.names[1 - clause.person]
        return form.format(p=p, q=q, word=clause.word, n=clause.number)


class PlanStep(NamedTuple):
    """One equation of a plan, and the word of the story that requires it."""

    word: str
    equation: Equation

    def __str__(self) -> str:
        return f"{self.word} {self.equation}"


def true_meanings(story: Story) -> dict[str, Meaning]:
    """The true meanings of the words of a story."""
    return {word: WORDS[word].meaning for word in story.words}


def plan_of(story: Story, meanings: Mapping[str, Meaning], *, limit: int) -> tuple[PlanStep, ...] | None:
    """The steps that answer a story whose words have these ``meanings``; the last result is the answer.

    None if no plan exists: an amount would be negative, fractional or above ``limit``, the answer would be 0, or no
    event affects the person in question.
    """
    amounts = [story.start, story.start if story.opening in _RELATIONS else story.second]
    written: list[tuple[int, PlanStep]] = []  # (person whose amount it gives, step), in the story's order
    for word, person, op, number in _changes(story, meanings):
        equation = Equation.of(amounts[person], op, number)
        if equation is None or equation.result > limit:
            return None
        amounts[person] = equation.result
        written.append((person, PlanStep(word, equation)))
    if isinstance(story.asked, int):
        kept = tuple([step for person, step in written if person == story.asked])
    else:
        op, pair = ("+", amounts) if meanings[story.asked] == "sum" else ("-", sorted(amounts, reverse=True))
        last = Equation.of(pair[0], op, pair[1])
        steps = [step for _, step in written]
        kept = (*steps, PlanStep(story.asked, last)) if last and last.result <= limit else ()
    return kept if kept and kept[-1].equation.result > 0 else None


def _changes(story: Story, meanings: Mapping[str, Meaning]) -> Iterator[tuple[str, int, str, int]]:
    """Yields the changes of amounts in the story's order: word, person, operation and number."""
    if relation := _RELATIONS.get(story.opening):
        yield story.opening, 1, relation, story.second
    for clause in story.clauses:
        for person, op in zip((clause.person, 1 - clause.person), _EFFECTS[meanings[clause.word]], strict=True):
            if op:
                yield clause.word, person, op, clause.number
