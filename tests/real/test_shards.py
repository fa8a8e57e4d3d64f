"""ZeRO-2 and ZeRO-3 on two ranks against one process, with all weights and with adapters.

They train the first layers of the real model, whose embedding has 28 of 35 million weights. Two ranks, one process and
the data of the comparison thus need little memory. Further layers would be sharded in the same way. Each rank has
different problems.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tests.real.shards import KINDS, LEARNING_RATE, STAGES, STEPS, compared, trained
from tests.two_ranks import on_ranks

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def one(few_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the results of one process, for each kind."""
    folder = tmp_path_factory.mktemp("one")
    for kind in KINDS:
        torch.save(trained("one", kind, few_layers), folder / f"{kind}.pt")
    return folder


@pytest.fixture(scope="module")
def two(one: Path, few_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of each rank; the processes are started once."""
    return on_ranks(compared, tmp_path_factory.mktemp("two"), few_layers, one)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stage", STAGES)
def test_sharded_training_on_two_ranks_matches_one_process(
    stage: str, kind: str, one: Path, two: list[dict[str, Any]], record_property: pytest.RecordProperty
) -> None:
    """The steps of all weights together agree to 1e-4 of their length.

    In float32 a gradient is summed in another order, and AdamW divides by its size. A weight with almost no gradient
    may therefore change in another direction.
    """
    expected = torch.load(one / f"{kind}.pt", weights_only=True)
    first, second = (rank[f"{stage} {kind}"] for rank in two)
    record_property("apart, as a share of what was learned", first["apart"])
    record_property("the weight farthest apart", first["farthest"])
    assert expected["moved"].abs().max() > LEARNING_RATE / 2
    assert first["apart"] <= 1e-4
    assert first["sha256"] == second["sha256"], "both ranks have the same weights, bit for bit"
    assert min(first["passes"], second["passes"]) > 2 * STEPS, "several micro-batches in each mini-batch"
    for ours, theirs in zip(first["steps"], expected["steps"], strict=True):
        assert theirs["train/optimizer/gradient_norm"] > 0
        assert_close({name: ours[name] for name in theirs}, dict(theirs), rtol=1e-4, atol=1e-4)
