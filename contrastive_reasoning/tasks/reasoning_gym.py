"""Generated problems of the library reasoning-gym, and its scorers. The library is optional.

A dataset of seed s draws its item i from a generator of seed s + i. The seeds of the splits are therefore further apart
than a split is long; otherwise items of one split would be repeated in another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Any

from contrastive_reasoning.tasks.answer.extract import THOUGHT_ENDS, without_thoughts
from contrastive_reasoning.tasks.base import Problem, Split
from contrastive_reasoning.tasks.problem_set import FunctionTask, VerifyProblems
from contrastive_reasoning.tasks.rows import PlacedRow, Row, as_text

FIRST_SEEDS: Mapping[Split, int] = {"test": 0, "validation": 100_000_000, "train": 200_000_000}
MOST = 100_000_000
"""Maximum number of items of a split."""
SPARE = 1000
"""Items that are read beyond twice the number of problems, if questions are repeated."""
REFUSED = {
    **dict.fromkeys(
        ("isomorphic_strings", "polynomial_multiplication", "ransom_note"),
        "its items depend on the order of a set, which differs between processes",
    ),
    "game_of_life_halting": "its scorer accepts every answer",
    **dict.fromkeys(
        (
            "binary_matrix",
            "countdown",
            "intermediate_integration",
            "n_queens",
            "puzzle24",
            "simple_integration",
            "spiral_matrix",
            "string_insertion",
        ),
        "its scorer executes the answer (eval, or sympy's parse_expr)",
    ),
    "composite": "it joins other datasets, also those that are no tasks",
}
"""Datasets of the pinned version that are no tasks → the reason."""


def dataset_of(name: str, settings: Mapping[str, Any] | None, *, seed: int = 0, size: int = 1) -> Any:
    """A dataset of the library; it generates an item when the item is read.

    Raises:
        ModuleNotFoundError: if the library is not installed.
        ValueError: for an unknown dataset or setting, with the nearest or all names, a value that the library refuses,
            or a dataset in ``REFUSED``.
    """
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"task=reasoning_gym needs the library (no module {missing.name}): pip install reasoning-gym"
        ) from missing
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, n=3)
        raise ValueError(f"dataset={name}: no such dataset; nearest are {', '.join(near or sorted(DATASETS))}")
    if name in REFUSED:
        raise ValueError(f"dataset={name}: {REFUSED[name]}")
    settings = settings or {}
    known = [one.name for one in fields(DATASETS[name][1]) if one.name not in ("seed", "size")]
    if unknown := [key for key in settings if key not in known]:
        raise ValueError(f"settings.{unknown[0]}: {name} has no such setting; there are {', '.join(known) or 'none'}")
    try:
        return reasoning_gym.create_dataset(name, seed=seed, size=size, **settings)
    except (AssertionError, TypeError) as refused:
        raise ValueError(f"settings of {name}: {refused}") from refused


@dataclass(frozen=True, kw_only=True)
class GymRows:
    """The rows of one split, of which no two have the same question.

    A row has question and answer, and what scores an answer: dataset, settings, and the library's whole item.
    """

    dataset: str
    settings: Mapping[str, Any] | None = field(hash=False)  # a dict has no hash
    split: Split
    size: int
    without: tuple[GymRows, ...]
    """Splits whose questions are left out."""

    def __post_init__(self) -> None:
        if not 0 <= self.size <= (MOST - SPARE) // 2:
            raise ValueError(f"{self.split}_problems must lie in 0 … {(MOST - SPARE) // 2}, got {self.size}")

    @property
    def source(self) -> str:
        return f"reasoning-gym's {self.dataset}"

    def at(self, path: str) -> GymRows:
        raise ValueError(f"{self.source} is generated, not read from {path}")

    def __call__(self) -> Iterator[PlacedRow]:
        """Yields the rows. Raises ValueError if too few of the items have different questions."""
        most = 2 * self.size + SPARE  # some datasets draw what all of their items share when they are built
        items = dataset_of(self.dataset, self.settings, seed=FIRST_SEEDS[self.split], size=most)
        seen = {placed.row["question"] for rows in self.without for placed in rows()}
        found = 0
        for index in range(most):
            if found == self.size:
                return
            item = items[index]
            question = item["question"]
            if question in seen:
                continue
            seen.add(question)
            found += 1
            scorer = {"dataset": self.dataset, "settings": self.settings, "item": item}
            yield PlacedRow(f"item {index}", {"question": question, "answer": item["answer"], **scorer})
        if found < self.size:
            raise ValueError(
                f"{self.source}: {found} different questions in {most} items, without those of other splits, and "
                f"{self.split}_problems={self.size}: take fewer, or wider settings"
            )


@dataclass(frozen=True, kw_only=True)
class GymFormat:
    """The question in a prompt. The answer is the library's example, empty where there are only criteria."""

    prompt: str
    """The prompt, with ``{question}``."""
    tag: str | None
    """The tag in which the answer is written, also that of the example; None: none."""

    def __post_init__(self) -> None:
        if "{question}" not in self.prompt:
            raise ValueError(f"prompt must contain {{question}}, got {self.prompt!r}")

    def __call__(self, row: Row, *, id: str) -> Problem:
        prompt = self.prompt.replace("{question}", as_text(row["question"], "question"))
        answer = str(row["answer"] or "").strip()
        if answer and self.tag is not None:
            answer = f"<{self.tag}>{answer}</{self.tag}>"
        return Problem(id=id, prompt=prompt, answer=answer, fields=row)


def verify(
    problem: Problem, completion: str, *, tag: str | None, thought_ends: Sequence[str] = THOUGHT_ENDS
) -> float | str:
    """The library's score of a completion, from 0 to 1, or why there is none; only 1 is correct.

    Some scorers raise for an answer that they cannot read. That is a wrong answer, not a failure of the verifier:
    otherwise a policy could avoid a bad verdict by writing such answers.

    Args:
        problem: a problem of ``GymRows``.
        completion: text that a model wrote, so this runs in a worker process.
        tag: the answer is the content of the last ``<tag>``; None: the whole completion.
        thought_ends: tags that end a completion's thoughts; the answer follows them.
    """
    answer = answer_in(completion, tag, thought_ends)
    if answer is None:
        return f"no <{tag}> with an answer"
    scorer = _scorer(problem.fields["dataset"], json.dumps(problem.fields["settings"]))
    try:
        return float(scorer(answer, dict(problem.fields["item"])))
    except Exception as error:  # of the library's scorer
        return f"the scorer cannot read it: {type(error).__name__}"


def score(problem: Problem, completion: str, *, tag: str | None, thought_ends: Sequence[str] = THOUGHT_ENDS) -> float:
    """A reward function: the library's score, partial for some datasets; 0 where ``verify`` has a reason instead."""
    found = verify(problem, completion, tag=tag, thought_ends=thought_ends)
    return 0.0 if isinstance(found, str) else found


def answer_in(completion: str, tag: str | None, thought_ends: Sequence[str]) -> str | None:
    """The text in the last ``<tag>``, after any thoughts; the whole text if there is no ``tag``."""
    text = without_thoughts(completion, thought_ends)
    if tag is None:
        return text.strip()
    _, opened, rest = text.rpartition(f"<{tag}>")
    answer, closed, _ = rest.partition(f"</{tag}>")
    return answer.strip() if opened and closed else None


@lru_cache(maxsize=4)
def _scorer(dataset: str, settings: str) -> Callable[[str, dict[str, Any]], float]:
    """One scorer for all calls in a process; the constructors of some datasets read files."""
    return dataset_of(dataset, json.loads(settings)).score_answer


def gym_task(
    *,
    name: str,
    dataset: str,
    settings: Mapping[str, Any] | None,
    prompt: str,
    tag: str | None,
    train_problems: int,
    validation_problems: int,
    test_problems: int,
    verifier: Callable[..., VerifyProblems],
    thought_ends: Sequence[str] = THOUGHT_ENDS,
) -> FunctionTask:
    """A task of one dataset; only a score of 1 is correct. Problems are generated when they are first read.

    Args:
        settings: those of the dataset, such as its difficulty; None, and those left out: the library's values.
        prompt: the prompt, with ``{question}``.
        tag: as in :func:`verify`.
        train_problems, validation_problems, test_problems: numbers of different questions. None is in two splits.
        verifier: builds the verifier from its ``function``.
        thought_ends: as in :func:`verify`.

    Raises:
        ModuleNotFoundError: if the library is not installed.
        ValueError: for an unknown dataset or setting, or a size out of range.
    """
    dataset_of(dataset, settings)
    shared: dict[str, Any] = {"dataset": dataset, "settings": settings}
    test = GymRows(**shared, split="test", size=test_problems, without=())
    validation = GymRows(**shared, split="validation", size=validation_problems, without=(test,))
    train = GymRows(**shared, split="train", size=train_problems, without=(test, validation))
    return FunctionTask(
        name=name,
        train=train,
        validation=validation,
        test=test,
        path=None,
        format=GymFormat(prompt=prompt, tag=tag),
        on_bad="refuse",
        train_problems=None,
        validation_problems=validation_problems,
        test_problems=test_problems,
        verifier=verifier(function=partial(verify, tag=tag, thought_ends=thought_ends)),
    )
