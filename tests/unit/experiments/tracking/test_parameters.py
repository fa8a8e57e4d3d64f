"""A configuration as MLflow's parameters."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.tracking.parameters import flatten, tracker_name


@pytest.mark.parametrize(
    ("config", "flat"),
    [
        ({"a": {"b": 1, "c": None}, "d": True}, {"a.b": "1", "a.c": "null", "d": "true"}),
        ({"stages": ["critic", "grpo"]}, {"stages": "['critic', 'grpo']"}),
        ({"parts": [{"w": 1}, {"w": 2}]}, {"parts.0.w": "1", "parts.1.w": "2"}),
        ({"a@b=c|d(e)": 1}, {"a_b_c_d_e_": "1"}),
        ({"long": "x" * 999}, {"long": "x" * 250}),
        ({"empty": {}, "none": []}, {"empty": "{}", "none": "[]"}),
    ],
)
def test_parameters_are_flat_and_short(config: dict[str, Any], flat: dict[str, str]) -> None:
    assert flatten(config) == flat


def test_names_of_ours_are_left_as_they_are() -> None:
    for name in ("test/verifier/pass_at_8", "reward._target_", "callbacks.grpo"):
        assert tracker_name(name) == name
