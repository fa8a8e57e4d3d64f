"""Countdown as a task: the source of each split's problems, their prompts, and the verification of completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from contrastive_reasoning.ranges import at_least, one_of
from contrastive_reasoning.tasks.base import Problem, Split, make_tuples, split_of
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw_distinct
from contrastive_reasoning.tasks.countdown.longproc import (
    ReadProblem,
    longproc_scores,
    read_longproc,
    read_problem_lines,
)
from contrastive_reasoning.tasks.countdown.problem import (
    EXAMPLES,
    LONGPROC_EXAMPLES,
    CountdownProblem,
    fill_template,
    problem_key,
    read_template,
)
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.trace import Style
from contrastive_reasoning.tasks.countdown.verifier import verify
from contrastive_reasoning.tasks.rows import OnBad

Source = Literal["generated", "longproc"]
TrainSource = Literal["generated", "longproc", "file"]
EASIEST = "countdown_0.5k.json"
TEMPLATE = "prompts.yaml"

_EXAMPLE_KEYS = frozenset([problem_key(*example) for example in (*EXAMPLES, *LONGPROC_EXAMPLES)])


@dataclass(frozen=True, kw_only=True)
class CountdownTask:
    """Countdown with its problems, which are read or generated once per process, on the first call of ``problems``."""

    style: Style
    """The form of completions: ``longproc``, ``annotated``, ``released`` or ``direct``."""
    train: TrainSource
    """``generated``, ``longproc`` (the benchmark's own problems, as the paper did) or ``file``."""
    test: Source
    """``generated`` or ``longproc``."""
    longproc_dir: str | None
    """Folder or URL (``https://…``) of LongProc's files: its problems, and ``prompts.yaml``, the prompt of style
    ``longproc``. None: its problems are neither used nor excluded from the generated ones.
    """
    longproc_files: Sequence[str] = (EASIEST,)
    """Which of LongProc's problem files are used."""
    fetch: Callable[[str], Path] | None = None
    """Returns the local copy of a file at a URL; raises FileNotFoundError if there is none."""
    train_file: str | None = None
    """JSON-lines file of problems, for ``train="file"``."""
    on_bad: OnBad = "refuse"
    """What to do with bad problems of a file: ``refuse`` or ``leave_out``."""
    prompt_file: str | None = None
    """A user-defined prompt template, for any style. None: LongProc's or the project's."""
    counts: Sequence[int]
    """This field and the next three: see :class:`ProblemSpace`."""
    number_range: Sequence[int]
    target_range: Sequence[int]
    max_search_lines: int | None
    train_problems: int
    validation_problems: int
    test_problems: int
    seed: int

    verify = staticmethod(verify)
    parse_steps = staticmethod(parse_steps)

    def __post_init__(self) -> None:
        make_tuples(self, "longproc_files", "counts", "number_range", "target_range")
        one_of(get_args(Style), style=self.style)
        one_of(get_args(TrainSource), train=self.train)
        one_of(get_args(Source), test=self.test)
        one_of(get_args(OnBad), on_bad=self.on_bad)
        at_least(0, train_problems=self.train_problems, validation_problems=self.validation_problems)
        at_least(0, test_problems=self.test_problems)
        if not self.longproc_files:
            raise ValueError(f"longproc_files must name one or more files, {EASIEST} say")
        for split in ("train", "test"):
            if getattr(self, split) == "longproc" and self.longproc_dir is None:
                raise ValueError(
                    f"{split}=longproc poses LongProc's own problems: name the folder or the address where "
                    f"{', '.join(self.longproc_files)} lies as task.longproc_dir"
                )
        if (self.train == "file") != (self.train_file is not None):
            raise ValueError(f"train=file and train_file go together, got {self.train} and {self.train_file}")
        _ = self.space  # raises now for a range that is not allowed, rather than on the first draw
        if self.prompt_file is not None:
            read_template(self.prompt_file, longproc=False)

    @property
    def name(self) -> str:
        return "countdown"

    @property
    def space(self) -> ProblemSpace:
        """The distribution of the generated problems."""
        return ProblemSpace(
            counts=self.counts,
            number_range=self.number_range,
            target_range=self.target_range,
            max_search_lines=self.max_search_lines,
        )

    @property
    def trains_on_evaluation_problems(self) -> bool:
        """Whether the test problems are the training problems; an evaluation must report this."""
        return self.train == self.test == "longproc"

    def problems(self, split: Split) -> Sequence[CountdownProblem]:
        """The problems of a split; none is in two splits unless ``trains_on_evaluation_problems``.

        Raises:
            ValueError: if a file has bad problems, or the space is too small.
            FileNotFoundError: if a file is missing or cannot be fetched.
        """
        return _problems(self, split)

    def problem(self, numbers: Sequence[int], target: int, *, source: str = "given") -> CountdownProblem:
        """Builds a problem with the prompt of this task."""
        template = None
        if self.prompt_file is not None:
            template = read_template(self.prompt_file, longproc=False)
        elif self.style == "longproc" and self.longproc_dir:
            template = read_template(str(self.longproc_path(TEMPLATE)), longproc=True)
        prompt = None if template is None else fill_template(template, numbers, target, style=self.style)
        return CountdownProblem(numbers, target, style=self.style, prompt=prompt, source=source)

    def longproc_path(self, file: str) -> Path:
        """The local path of a file of ``longproc_dir``, which is fetched if that is a URL."""
        place = str(self.longproc_dir).rstrip("/")
        if "://" in place:
            if self.fetch is None:
                raise ValueError(f"longproc_dir={place} is an address, and nothing was given to fetch from one")
            return self.fetch(f"{place}/{file}")
        if not (path := Path(place).expanduser() / file).is_file():
            raise FileNotFoundError(f"no {file} in longproc_dir={place!r}")
        return path

    def split_of(self, problem: CountdownProblem) -> Split | None:
        """The split that a problem belongs to; None for unused problems of LongProc and for worked examples."""
        if problem.key in _longproc_keys(self):
            if self.train == "longproc":
                return "train"
            return "test" if self.test == "longproc" else None
        if problem.key in _train_file_keys(self):
            return "train"
        return None if problem.key in _EXAMPLE_KEYS else split_of(problem.key)

    def reserved_keys(self) -> frozenset[str]:
        """Keys of problems that are never generated: LongProc's, those of the training file, worked examples."""
        return _EXAMPLE_KEYS | _longproc_keys(self) | _train_file_keys(self)

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        """LongProc's three scores. Direct moves are put between the solution tags first, one per line."""
        text = f"<Solution>\n{completion.replace(';', chr(10))}\n</Solution>" if self.style == "direct" else completion
        return {f"longproc/{name}": value for name, value in longproc_scores(problem, text).items()}


@lru_cache(maxsize=16)
def _problems(task: CountdownTask, split: Split) -> tuple[CountdownProblem, ...]:
    source = {"train": task.train, "validation": "generated", "test": task.test}[split]
    if source != "generated":
        rows = _longproc(task) if source == "longproc" else _train_file(task)
        return tuple([task.problem(row.numbers, row.target, source=row.source) for row in rows])
    wanted = {"train": task.train_problems, "validation": task.validation_problems, "test": task.test_problems}[split]
    pairs = draw_distinct(task.space, seed=task.seed, split=split, exclude=task.reserved_keys())
    return tuple([task.problem(*next(pairs), source="generated") for _ in range(wanted)])


@lru_cache(maxsize=16)
def _longproc(task: CountdownTask) -> tuple[ReadProblem, ...]:
    if task.longproc_dir is None:
        return ()
    return read_longproc([task.longproc_path(file) for file in task.longproc_files], on_bad=task.on_bad)


@lru_cache(maxsize=16)
def _train_file(task: CountdownTask) -> tuple[ReadProblem, ...]:
    """The problems of the training file, without those of LongProc, which stay held out."""
    rows = read_problem_lines(task.train_file, on_bad=task.on_bad) if task.train_file is not None else ()
    kept = tuple([row for row in rows if row.key not in _longproc_keys(task)])
    if len(kept) < len(rows) and task.on_bad == "refuse":
        held_out = len(rows) - len(kept)
        raise ValueError(f"{held_out} problems of {task.train_file!r} are LongProc's: on_bad=leave_out skips them")
    return kept


@lru_cache(maxsize=16)
def _longproc_keys(task: CountdownTask) -> frozenset[str]:
    return frozenset([row.key for row in _longproc(task)])


@lru_cache(maxsize=16)
def _train_file_keys(task: CountdownTask) -> frozenset[str]:
    return frozenset([row.key for row in _train_file(task)])
