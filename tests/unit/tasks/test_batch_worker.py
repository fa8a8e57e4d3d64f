"""What a worker makes of a list of numbers; the process itself: tests/unit/rewards/test_trl.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrastive_reasoning.tasks.batch_worker import scored
from contrastive_reasoning.tasks.function_worker import packed


def reply_to(value: Any, *, wanted: int = 3) -> tuple[str, Any]:
    return scored(lambda **given: value, packed(({"prompts": ["p"] * wanted}, wanted)).decode())


@pytest.mark.parametrize(
    "value", [[0.5, None, 2], (0.5, None, 2), iter([0.5, None, 2]), np.array([0.5, None, 2], dtype=object)]
)
def test_a_list_of_numbers_and_none_comes_back_as_it_is(value: Any) -> None:
    assert reply_to(value) == ("numbers", [0.5, None, 2.0])


def test_the_arguments_arrive_by_name() -> None:
    line = packed(({"completions": ["a", "bb"], "word": ["x", "y"]}, 2)).decode()
    assert scored(lambda completions, word: [len(a) + len(b) for a, b in zip(completions, word)], line) == (  # noqa: B905
        "numbers",
        [2.0, 3.0],
    )


def test_a_coroutine_is_awaited() -> None:
    async def slow(completions: list[str]) -> list[float]:
        return [float(len(text)) for text in completions]

    assert scored(slow, packed(({"completions": ["a", "bb"]}, 2)).decode()) == ("numbers", [1.0, 2.0])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "returned NoneType, not a list of 3 numbers"),
        (1.0, "returned float, not a list of 3 numbers"),
        ("123", "returned str, not a list of 3 numbers"),
        ([1.0, 2.0], "returned 2 numbers for 3 completions"),
        ([1.0, float("inf"), 2.0], "returned inf for completion 1, neither a finite number nor None"),
        ([1.0, 2.0, "3"], "returned str for completion 2, neither a finite number nor None"),
        ([[1.0], [2.0], [3.0]], "returned list for completion 0, neither a finite number nor None"),
    ],
)
def test_anything_else_is_an_error_with_a_reason(value: Any, reason: str) -> None:
    assert reply_to(value) == ("error", reason)
