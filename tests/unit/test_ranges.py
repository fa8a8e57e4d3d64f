"""Checks of arguments: what passes, and what the errors name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, nan
from typing import Any

import pytest

from contrastive_reasoning.ranges import above, at_least, one_of, within


@pytest.mark.parametrize(
    ("check", "passes", "raises"),
    [
        (partial(at_least, 1), [1, 1.5, inf], [0, 0.99, -inf]),
        (partial(above, 0), [1e-9, 3], [0, -1]),
        (partial(within, "(0, 1]"), [0.1, 1], [0, 1.01, -1]),
        (partial(within, "[0, 1)"), [0, 0.99], [1, -0.1]),
        (partial(within, "[0, inf)"), [0, 1e9], [inf, -1]),
    ],
)
def test_number_out_of_range_is_named_with_its_value(
    check: Callable[..., None], passes: list[float], raises: list[float]
) -> None:
    for value in passes:
        check(tau=value, share=value)
    for value in (*raises, nan, None):
        with pytest.raises(ValueError, match=f"^share must .*, got {value}$"):
            check(tau=passes[0], share=value)


@pytest.mark.parametrize("choices", [("plain", "search"), {"plain": 1, "search": 2}])
def test_unknown_choice_is_named_with_all_choices(choices: Any) -> None:
    one_of(choices, style="plain", other="search")
    with pytest.raises(ValueError, match=r"^style must be one of plain, search, got 'serch'$"):
        one_of(choices, style="serch")
