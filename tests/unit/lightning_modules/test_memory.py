"""A micro-batch that does not fit: the allocator's own refusal, half the tokens, the same gradient."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.objectives import ObjectiveInputs, ObjectiveOutputs
from lightning_modules.memory import out_of_memory
from tests.unit.lightning_modules.grpo_kit import Gradients, Metrics, fit, module, objective, saving, weights

NEVER_THERE = 2**56
"""Bytes that no machine has."""
BUDGET = 10_000
NAME = "train/optimizer/microbatch_tokens"


class Hungry:
    """Takes memory for every row of a micro-batch, and too much of it above ``rows``."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.sound = objective()

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        if len(inputs.mask) > self.rows:
            torch.empty(NEVER_THERE, dtype=torch.uint8)
        return self.sound(inputs)

    def weights(self, mask: Tensor, *, rows: float, tokens: float) -> Tensor:
        return self.sound.weights(mask, rows=rows, tokens=tokens)


@pytest.fixture(autouse=True)
def only_what_the_test_makes_is_searched_for_garbage() -> Iterator[None]:
    """Each halving collects it, which takes a second among all that hundreds of tests before have left."""
    gc.freeze()
    yield
    gc.unfreeze()


def settings(**changes: Any) -> dict[str, Any]:
    return {"microbatch_tokens": BUDGET, "updates_per_rollout": 2, "gradient_clip": None, **changes}


def test_the_budget_is_halved_until_it_fits_and_the_gradient_is_the_same() -> None:
    plenty, little, metrics = Gradients(), Gradients(), Metrics()
    fit(module(**settings()), 1, plenty)
    with pytest.warns(UserWarning, match="does not fit into memory: microbatch_tokens is"):
        fit(module(**settings(objective=Hungry(rows=5))), 1, little, metrics)
    assert metrics.steps[0][NAME] < BUDGET / 2
    assert len(plenty.updates) == len(little.updates) == 2
    for whole, halved in zip(plenty.updates, little.updates, strict=True):
        assert whole.norm() > 1e-3
        assert ((whole - halved).norm() / whole.norm()).item() < 1e-6


def test_a_resumed_run_begins_with_what_fitted(tmp_path: Path) -> None:
    whole, metrics = module(**settings(objective=Hungry(rows=5))), Metrics()
    with pytest.warns(UserWarning, match="does not fit"):
        fit(whole, 2, saving(tmp_path, keep=2), metrics)
    resumed, later = module(**settings(objective=Hungry(rows=5))), Metrics()
    fit(resumed, 2, saving(tmp_path / "then"), later, resume=tmp_path / "step=000001.ckpt")
    assert later.steps[0][NAME] == metrics.steps[1][NAME] < BUDGET
    assert torch.equal(weights(resumed), weights(whole))


def test_what_does_not_fit_row_by_row_is_said() -> None:
    with pytest.raises(RuntimeError) as error:
        fit(module(**settings(objective=Hungry(rows=0))), 1)
    assert out_of_memory(error.value)


def test_other_errors_are_no_lack_of_memory() -> None:
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
