"""A Countdown problem: numbers and target, identified by the multiset of numbers and the target, and its prompt.

The prompt is one bare line for ``direct``, else instructions with two worked examples. The wording is the project's own
and keeps LongProc's format: the search under its header, the answer in tags. ``read_template`` reads LongProc's
template or the user's, and ``fill_template`` fills it, byte for byte as LongProc's loader does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from contrastive_reasoning.ranges import one_of
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.game import MAX_RESULT
from contrastive_reasoning.tasks.countdown.trace import STYLES, WORDINGS, search_trace

Pair = tuple[tuple[int, ...], int]
"""Numbers in the order shown, and the target."""

EXAMPLES: tuple[Pair, Pair] = (((8, 19, 25, 10), 20), ((3, 6, 29, 31), 18))
"""The worked examples of our own prompt: one solved with the first pair, one after a pair was abandoned."""
LONGPROC_EXAMPLES: tuple[Pair, Pair] = (((40, 19, 23, 7), 29), ((9, 16, 6, 18), 12))
"""The worked examples of LongProc's prompt."""
PLACEHOLDERS = ("{nums}", "{target}", "{demonstration}")
"""All are in LongProc's template; the last, where the worked examples stand, may be missing in the user's."""
_USER_PROMPT = re.compile(r"^USER_PROMPT: \|-[ \t\r]*\n((?:[ \t\r]*\n| .*(?:\n|\Z))*)", re.MULTILINE)

_INSTRUCTIONS = """\
Combine the given numbers with +, -, * and / so that the last result is the target. Every number is used exactly once.

Rules:
- A move takes two of the numbers left and puts their result in their place, in front of the others.
- The larger number comes first: a + b, a - b, a * b, a / b with a >= b.
- A result must be a whole number below {limit}; a move that breaks this is dropped.

Search depth first. Take the pairs in the order of the list, try +, -, *, / on each, go on with the first legal \
result, and come back when nothing is left to try. Stop as soon as the last number is the target.

{examples}

Now solve this problem in the same way. Write the search under "{header}". Then give one equation per line between \
<Solution> and </Solution>, with nothing else between the tags.

{problem}
"""


def problem_key(numbers: Sequence[int], target: int) -> str:
    """``16,17,21,26=46``: the same for every order of the numbers. It determines the split."""
    return f"{','.join(map(str, sorted(numbers)))}={target}"


@dataclass(frozen=True, init=False)
class CountdownProblem(Problem):
    """Reach ``target`` from ``numbers``. Problems with equal keys are the same, whatever the order of the numbers.

    ``fields`` holds numbers, target, style and source.
    """

    numbers: tuple[int, ...]
    """In the order shown."""
    target: int

    def __init__(
        self,
        numbers: Sequence[int],
        target: int,
        *,
        style: str = "longproc",
        prompt: str | None = None,
        source: str = "given",
    ) -> None:
        """
        Args:
            numbers: one or more integers ≥ 0, in the order shown.
            style: the requested form of the completion, one of ``STYLES``.
            prompt: None for the project's own wording in that style.

        Raises:
            ValueError: if there are no numbers, one is not an integer ≥ 0, the target is not an integer, or, without a
                prompt, the style is unknown.
        """
        shown = tuple(numbers)
        # not isinstance: True is an instance of int
        if not shown or any(type(number) is not int or number < 0 for number in shown):
            raise ValueError(f"numbers must be one or more integers ≥ 0, got {list(shown)}")
        if type(target) is not int:
            raise ValueError(f"target must be an integer, got {target!r}")
        if prompt is None:
            prompt = problem_prompt(shown, target, style=style)
        fields = {"numbers": shown, "target": target, "style": style, "source": source}
        super().__init__(id=f"countdown:{problem_key(shown, target)}", prompt=prompt, answer=str(target), fields=fields)
        object.__setattr__(self, "numbers", shown)
        object.__setattr__(self, "target", target)

    @property
    def key(self) -> str:
        return problem_key(self.numbers, self.target)

    def __hash__(self) -> int:  # the generated one raises, because ``fields`` is a dict
        return hash(self.id)


def problem_prompt(numbers: Sequence[int], target: int, *, style: str) -> str:
    """The project's own prompt; raises a ValueError if the style is unknown."""
    one_of(STYLES, style=style)
    if style == "direct":
        return f"{' '.join(map(str, numbers))} = {target}\n"  # few tokens, for small policies
    examples, problem = worked_examples(EXAMPLES, style), _statement(numbers, target)
    header = WORDINGS[style].header
    return _INSTRUCTIONS.format(limit=MAX_RESULT, examples=examples, header=header, problem=problem)


@lru_cache(maxsize=16)
def read_template(path: str, *, longproc: bool) -> str:
    """Reads LongProc's prompt template or the user's; braces around other words are text.

    LongProc's ``prompts.yaml``, and a user's file with suffix ``.yaml`` or ``.yml``, hold it in the literal block
    ``USER_PROMPT``. Any other file of the user is the template itself, without its trailing line ends.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not UTF-8, lacks the block, or the template lacks a required placeholder.
    """
    file, named = Path(path).expanduser(), f"{'longproc_dir' if longproc else 'prompt_file'}={path!r}"
    if not file.is_file():
        raise FileNotFoundError(f"{named}: no such file")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{named} is not UTF-8 text: {error}") from error
    # a downloaded prompts.yaml has another name, without a suffix
    template = _user_prompt(text) if longproc or file.suffix in (".yaml", ".yml") else text.rstrip("\n")
    if missing := [name for name in PLACEHOLDERS[: 3 if longproc else 2] if name not in template]:
        raise ValueError(
            f"{named} lacks {' and '.join(missing)}: a template names {{nums}} and {{target}}, and {{demonstration}} "
            "where worked examples are to stand; in a YAML file it is the literal block USER_PROMPT: |-"
        )
    return template


def _user_prompt(text: str) -> str:
    """Returns the literal block ``USER_PROMPT`` of a YAML file; empty if there is none."""
    block = _USER_PROMPT.search(text)
    lines = block[1].split("\n") if block else []
    indent = min([len(line) - len(line.lstrip(" ")) for line in lines if line.strip()], default=0)
    return "\n".join([line[indent:] for line in lines]).rstrip("\n")


def fill_template(template: str, numbers: Sequence[int], target: int, *, style: str) -> str:
    """Replaces ``{nums}`` and ``{target}`` in a template, and ``{demonstration}`` by two worked examples in the style.
    Style ``longproc`` uses LongProc's own examples."""
    before, place, rest = template.partition("{demonstration}")
    examples = LONGPROC_EXAMPLES if style == "longproc" else EXAMPLES
    parts = [part.replace("{nums}", str(list(numbers))).replace("{target}", str(target)) for part in (before, rest)]
    return (worked_examples(examples, style) if place else "").join(parts)


@lru_cache(maxsize=8)
def worked_examples(examples: tuple[Pair, ...], style: str) -> str:
    """The examples with their searches, as in LongProc's prompt."""
    return "\n\n".join(
        [f"# Example\n{_statement(*example)}\n\n{search_trace(*example, style=style).text}" for example in examples]
    )


def _statement(numbers: Sequence[int], target: int) -> str:
    return f"Numbers: {list(numbers)}\nTarget: {target}"
