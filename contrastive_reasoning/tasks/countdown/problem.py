"""A Countdown problem: numbers and target, identified by the multiset of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.prompt import problem_prompt


def problem_key(numbers: Sequence[int], target: int) -> str:
    """``16,17,21,26=46``: the same for every order of the numbers. Splits are made by it."""
    return f"{','.join(map(str, sorted(numbers)))}={target}"


@dataclass(frozen=True, init=False)
class CountdownProblem(Problem):
    """Reach ``target`` from ``numbers``. Equal keys are one problem, whatever the order of the numbers.

    ``fields`` repeats numbers, target and style, and names the source.
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
        """Fills id, prompt and answer.

        Args:
            numbers: one or more integers ≥ 0, in the order shown.
            target: the number to reach.
            style: the form of the completion asked for: ``longproc``, ``annotated`` or ``direct``.
            prompt: the prompt; None for the project's own wording in that style.
            source: where the problem comes from.

        Raises:
            ValueError: on no numbers, anything but integers ≥ 0, or an unknown style.
        """
        shown = tuple(numbers)
        if not shown or any(not _is_natural(number) for number in shown):
            raise ValueError(f"numbers must be one or more integers ≥ 0, got {list(shown)}")
        if not isinstance(target, int) or isinstance(target, bool):
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

    def __hash__(self) -> int:
        return hash(self.id)


def _is_natural(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
