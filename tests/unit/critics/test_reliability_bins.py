"""Bins of a reliability diagram against plain loops, and against the error that is computed without them."""

from __future__ import annotations

import pytest
import torch

from contrastive_reasoning.critics.reliability import expected_calibration_error
from contrastive_reasoning.critics.reliability_bins import reliability_bins


def test_bins_and_error_are_those_of_plain_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200, generator=generator, dtype=torch.float64) ** 3
    label = torch.rand(200, generator=generator) < 0.4
    found = reliability_bins(probability, label, bins=7)
    error, place = 0.0, 0
    for lower in range(7):
        rows = [i for i in range(200) if lower / 7 <= probability[i] < (lower + 1) / 7]
        if rows:
            mean = sum(float(probability[i]) for i in rows) / len(rows)
            share = sum(bool(label[i]) for i in rows) / len(rows)
            assert found.predicted[place].item() == pytest.approx(mean)
            assert found.true[place].item() == pytest.approx(share)
            assert found.count[place].item() == len(rows)
            error += len(rows) / 200 * abs(mean - share)
            place += 1
    assert len(found.count) == place
    assert found.expected_error == pytest.approx(error)
    apart = expected_calibration_error(probability, label.double(), torch.ones_like(probability), bins=7)
    assert found.expected_error == pytest.approx(apart)


def test_ends_of_the_range_are_in_the_outer_bins() -> None:
    found = reliability_bins(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([False, True, True]), bins=2)
    assert found.count.tolist() == [1, 2]
    assert found.true.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("numbers", "bins", "sentence"), [([0.5], 0, "bins"), ([], 3, "no predictions"), ([1.5], 3, r"\[0, 1\]")]
)
def test_what_is_no_probability_is_refused(numbers: list[float], bins: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        reliability_bins(torch.tensor(numbers), torch.ones(len(numbers), dtype=torch.bool), bins=bins)
