"""The text that asks for a solution: one bare line for ``direct``, else instructions with two worked examples.

The wording is the project's own and keeps LongProc's contract: the search under its header, the answer in tags.
LongProc's own template is filled by ``fill_template``, byte for byte as its loader does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import get_args

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT
from contrastive_reasoning.tasks.countdown.trace import Style, search_trace
from contrastive_reasoning.tasks.countdown.wording import ANNOTATED, LONGPROC

Example = tuple[tuple[int, ...], int]

EXAMPLES: tuple[Example, Example] = (((8, 19, 25, 10), 20), ((3, 6, 29, 31), 18))
"""The worked examples of our own prompt: one found at once, one after a pair was given up."""
LONGPROC_EXAMPLES: tuple[Example, Example] = (((40, 19, 23, 7), 29), ((9, 16, 6, 18), 12))
"""The worked examples of LongProc's prompt."""
HEADERS = {"longproc": LONGPROC.header, "annotated": ANNOTATED.header}

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


def problem_prompt(numbers: Sequence[int], target: int, *, style: str) -> str:
    """The project's own prompt.

    Raises:
        ValueError: on an unknown style.
    """
    if style not in get_args(Style):
        raise ValueError(f"style must be one of {', '.join(get_args(Style))}, got {style!r}")
    if style == "direct":
        return f"{' '.join(map(str, numbers))} = {target}\n"  # few tokens: small policies read every one of them
    examples, problem = worked_examples(EXAMPLES, style), _stated(numbers, target)
    return _INSTRUCTIONS.format(limit=MAX_RESULT, examples=examples, header=HEADERS[style], problem=problem)


def fill_template(template: str, numbers: Sequence[int], target: int) -> str:
    """LongProc's template with its two examples and the problem; other braces stay.

    Args:
        template: holds ``{demonstration}``, and after it ``{nums}`` and ``{target}``.
        numbers, target: the problem.
    """
    before, rest = template.split("{demonstration}", 1)
    problem = rest.replace("{nums}", str(list(numbers))).replace("{target}", str(target))
    return before + worked_examples(LONGPROC_EXAMPLES, "longproc") + problem


@lru_cache(maxsize=8)
def worked_examples(examples: tuple[Example, ...], style: str) -> str:
    """The examples with their searches, as in LongProc's prompt."""
    return "\n\n".join(
        [f"# Example\n{_stated(*example)}\n\n{search_trace(*example, style=style).text}" for example in examples]
    )


def _stated(numbers: Sequence[int], target: int) -> str:
    return f"Numbers: {list(numbers)}\nTarget: {target}"
