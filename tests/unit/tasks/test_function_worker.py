"""What a worker makes of what a function returned; the processes themselves: tests/unit/rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from contrastive_reasoning.tasks.batch_worker import scored
from contrastive_reasoning.tasks.function_worker import number, packed, plain
from contrastive_reasoning.tasks.verify_worker import judged

ONE = packed(("problem", "completion")).decode()


def returning(value: Any) -> Callable[..., Any]:
    return lambda *given, **named: value


@pytest.mark.parametrize("value", [np.bool_(True), np.float32(1.0), np.array(1), torch.tensor(1.0), torch.tensor(True)])
def test_a_scalar_of_numpy_or_torch_is_the_number_that_it_is(value: Any) -> None:
    assert plain(value) == 1
    assert type(plain(value)) in (bool, int, float)
    assert number(returning(value), ONE) == ("number", 1.0)
    assert judged(returning(value), ONE) == ("ok", "")
    assert scored(returning([value, None]), packed(({}, 2)).decode()) == ("numbers", [1.0, None])


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
def test_a_reward_is_a_finite_number(value: Any, reply: tuple[str, Any]) -> None:
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
        ("", ("error", "returned an empty text, which is no reason")),
        (None, ("error", "returned NoneType, not true, false, a number from 0 to 1, or a reason")),
        ((True, "why"), ("error", "returned tuple, not true, false, a number from 0 to 1, or a reason")),
        (1.5, ("error", "returned 1.5, which is not between 0 and 1")),
        (-1, ("error", "returned -1, which is not between 0 and 1")),
        (float("nan"), ("error", "returned nan, which is not between 0 and 1")),
    ],
)
def test_a_verdict_is_true_false_a_share_or_a_reason(value: Any, reply: tuple[str, str]) -> None:
    assert judged(returning(value), ONE) == reply
