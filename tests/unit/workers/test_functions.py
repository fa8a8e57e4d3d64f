"""The replies of a worker to the values that a function returns. tests/unit/rewards tests the processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from contrastive_reasoning.workers.functions import as_python, number, numbers, pack, verdict

ONE = pack(("problem", "completion")).decode()


def returning(value: Any) -> Callable[..., Any]:
    return lambda *given, **named: value


@pytest.mark.parametrize("value", [np.bool_(True), np.float32(1.0), np.array(1), torch.tensor(1.0), torch.tensor(True)])
def test_numpy_and_torch_scalars_count_as_numbers(value: Any) -> None:
    assert as_python(value) == 1
    assert type(as_python(value)) in (bool, int, float)
    assert number(returning(value), ONE) == ("number", 1.0)
    assert verdict(returning(value), ONE) == ("ok", "")
    assert numbers(returning([value, None]), pack(({}, 2)).decode()) == ("numbers", [1.0, None])


@pytest.mark.parametrize(
    ("value", "reply"),
    [
        (True, ("number", 1.0)),
        (-2, ("number", -2.0)),
        (float("nan"), ("error", "returned nan")),
        (np.array([1.0]), ("error", "returned ndarray, not a number")),
        ("1", ("error", "returned str, not a number")),
    ],
)
def test_number_accepts_only_finite_numbers(value: Any, reply: tuple[str, Any]) -> None:
    assert number(returning(value), ONE) == reply


@pytest.mark.parametrize(
    ("value", "reply"),
    [
        (True, ("ok", "")),
        (1, ("ok", "")),
        (1.0, ("ok", "")),
        (False, ("wrong", "the verifier said no")),
        (0.0, ("wrong", "the verifier said no")),
        (0.25, ("wrong", "scored 0.25")),
        ("spelled forwards\nand more", ("wrong", "spelled forwards")),
        ("two words " * 30, ("wrong", "two words " * 20 + "…")),
        ("x" * 300, ("wrong", "…")),
        ("", ("error", "returned an empty text, which is not a reason")),
        (None, ("error", "returned NoneType, not true, false, a number from 0 to 1, or a reason")),
        ((True, "why"), ("error", "returned tuple, not true, false, a number from 0 to 1, or a reason")),
        (1.5, ("error", "returned 1.5, which is not between 0 and 1")),
        (-1, ("error", "returned -1, which is not between 0 and 1")),
        (float("nan"), ("error", "returned nan, which is not between 0 and 1")),
    ],
)
def test_verdict_accepts_only_bool_share_or_reason(value: Any, reply: tuple[str, str]) -> None:
    assert verdict(returning(value), ONE) == reply


def reply_to(value: Any, *, wanted: int = 3) -> tuple[str, Any]:
    return numbers(lambda **given: value, pack(({"prompts": ["p"] * wanted}, wanted)).decode())


@pytest.mark.parametrize(
    "value", [[0.5, None, 2], (0.5, None, 2), iter([0.5, None, 2]), np.array([0.5, None, 2], dtype=object)]
)
def test_numbers_returns_list_of_numbers_and_none(value: Any) -> None:
    assert reply_to(value) == ("numbers", [0.5, None, 2.0])


def test_numbers_passes_keyword_arguments_and_awaits_coroutine() -> None:
    async def slow(completions: list[str], word: list[str]) -> list[float]:
        return [float(len(text) + len(more)) for text, more in zip(completions, word, strict=True)]

    line = pack(({"completions": ["a", "bb"], "word": ["x", "y"]}, 2)).decode()
    assert numbers(slow, line) == ("numbers", [2.0, 3.0])


def some_rewards(value: Any, **given: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "NoneType"),
        (1.0, "float"),
        ("123", "str"),
        (b"123", "bytes"),
        ({0: 0.5, 1: 0.25, 2: 1.0}, "dict"),
        (dict.fromkeys(range(3), 0.5).keys(), "dict_keys"),
        ({0.0, 0.5, 1.0}, "set"),
        (np.array(1.0), "ndarray"),
        (np.ones((3, 1)), "ndarray"),
        ([1.0, 2.0], "returned 2 "),
        ((float(n) for n in range(2)), "returned 2 "),
        (count(), "more than 3"),
        ([1.0, float("inf"), 2.0], "inf for completion 1"),
        ([1.0, 2.0, "3"], "str for completion 2"),
        ([[1.0], [2.0], [3.0]], "list for completion 0"),
    ],
)
def test_numbers_rejects_other_return_values_and_names_the_function(value: Any, named: str) -> None:
    status, reason = numbers(partial(some_rewards, value), pack(({"prompts": ["p"] * 3}, 3)).decode())
    assert status == "error"
    assert f"{__name__}.some_rewards" in reason
    assert named in reason
