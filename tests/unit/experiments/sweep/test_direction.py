from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from omegaconf import OmegaConf

from experiments.sweep.direction import wrong_direction

Direction = Enum("Direction", ["minimize", "maximize"])
"""As the configuration of Optuna's sweeper has it."""


@pytest.mark.parametrize("right", ["maximize", Direction.maximize, ["maximize"], [Direction.maximize]])
def test_more_success_is_looked_for(right: Any) -> None:
    assert wrong_direction(OmegaConf.create({"direction": right})) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("minimize", "minimize"),
        (Direction.minimize, "minimize"),
        (["minimize"], "minimize"),
        (["maximize", "minimize"], "[maximize,minimize]"),
        ("maximise", "maximise"),
    ],
)
def test_anything_else_is_told_what_to_say(wrong: Any, said: str) -> None:
    assert wrong_direction(OmegaConf.create({"direction": wrong})) == (
        f"hydra.sweeper.direction={said}: jobs return one number, of which more is better (success): "
        "say hydra.sweeper.direction=maximize"
    )


def test_a_sweeper_that_learns_from_nothing_has_no_direction() -> None:
    assert wrong_direction(OmegaConf.create({"max_batch_size": None})) is None
