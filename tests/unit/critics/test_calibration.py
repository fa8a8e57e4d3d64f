"""Calibration curves against slow reference fits, curves per depth, saving, and measures of calibration."""

from __future__ import annotations

import io
import math
import random
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.critics import Calibration, Isotonic, Platt
from contrastive_reasoning.critics.calibration import (
    Curve,
    Examples,
    brier_score,
    cross_entropy,
    expected_calibration_error,
    reliability_bins,
    soft_targets,
)

CURVES = [Isotonic(), Platt()]


def examples(seed: int, count: int = 300, depths: int = 1) -> Examples:
    """Random successes. Their probability rises with the logit, at larger depth more steeply from a lower level."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        depth, logit, visits = rng.randint(2, 1 + depths), rng.gauss(0, 3), rng.randint(1, 6)
        chance = 1 / (1 + math.exp(depth - 0.5 * depth * logit))
        rows.append((logit, depth, sum(rng.random() < chance for _ in range(visits)) / visits, visits))
    logits, depth, share, visits = (torch.tensor(column) for column in zip(*rows, strict=True))
    return Examples(logits=logits.double(), depth=depth, share=share.double(), visits=visits.double())


def pooled_adjacent_violators(given: Examples) -> list[float]:
    """Slow reference isotonic fit: merges neighbouring blocks while the later block's mean is not higher."""
    order = given.logits.argsort().tolist()
    blocks = [[given.share[i].item() * given.visits[i].item(), given.visits[i].item(), [i]] for i in order]
    merged = True
    while merged:
        merged = False
        for at, (left, right) in enumerate(pairwise(blocks)):
            if left[0] / left[1] >= right[0] / right[1]:
                blocks[at : at + 2] = [[left[0] + right[0], left[1] + right[1], left[2] + right[2]]]
                merged = True
                break
    fitted = [0.0] * len(order)
    for successes, visits, members in blocks:
        for index in members:
            fitted[index] = successes / visits
    return fitted


@pytest.mark.parametrize("seed", range(3))
def test_isotonic_matches_pool_adjacent_violators(seed: int) -> None:
    given = examples(seed, count=60)
    numbers = Isotonic().fit(given.logits, given.share, given.visits)
    assert_close(Isotonic().predict(numbers, given.logits).tolist(), pooled_adjacent_violators(given))


@pytest.mark.parametrize("seed", range(3))
def test_platt_matches_newtons_method(seed: int) -> None:
    given = examples(seed)
    target = soft_targets(given.share, given.visits)
    rows = torch.stack([given.logits, torch.ones_like(given.logits)], dim=1)
    expected = torch.zeros(2, dtype=torch.float64)
    for _ in range(50):
        chance = (rows @ expected).sigmoid()
        gradient = rows.T @ (given.visits * (chance - target))
        expected = expected - torch.linalg.solve(
            rows.T @ ((given.visits * chance * (1 - chance))[:, None] * rows), gradient
        )
    numbers = Platt().fit(given.logits, given.share, given.visits)
    assert_close(torch.cat([numbers["slope"], numbers["intercept"]]), expected, rtol=1e-5, atol=1e-6)


def test_soft_targets_match_hand_computed_values() -> None:
    """Three successes in four visits: the target is 4/5 for a success and 1/3 for the failure."""
    share, visits = torch.tensor([1.0, 0.5]).double(), torch.tensor([2.0, 2.0]).double()
    assert_close(soft_targets(share, visits).tolist(), [4 / 5, 0.5 * 4 / 5 + 0.5 / 3])


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: type(curve).__name__)
def test_curve_is_monotone_probability_even_with_one_class(curve: Curve) -> None:
    logits, ones = torch.linspace(-30, 30, 9).double(), torch.ones(9).double()
    separated = (logits > 0).double()
    for share in (0 * ones, ones, separated):
        values = curve.predict(curve.fit(logits, share, ones), torch.tensor([-1e4, -3.0, 0.0, 3.0, 1e4]).double())
        assert values.isfinite().all()
        assert ((values >= 0) & (values <= 1)).all()
        assert (values.diff() > -1e-6).all()
    one = curve.fit(logits[:1], ones[:1], ones[:1])
    assert 0 <= curve.predict(one, logits[:1]).item() <= 1


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: type(curve).__name__)
def test_calibration_improves_on_sigmoid_at_each_depth(curve: Curve) -> None:
    """Fits on one sample and evaluates on another."""
    calibration, fresh = Calibration(curve=curve, least_visits=100), examples(1, count=2000, depths=2)
    raw = calibration(fresh.logits, fresh.depth)
    assert torch.equal(raw, fresh.logits.sigmoid()), "before the first fit"
    calibration.fit(examples(0, count=2000, depths=2))
    learned = calibration(fresh.logits, fresh.depth)
    for depth in (2, 3):
        here = fresh.depth == depth
        of = fresh.of(here)
        before = expected_calibration_error(raw[here], of.share, of.visits, bins=15)
        after = expected_calibration_error(learned[here], of.share, of.visits, bins=15)
        assert before > 0.15
        assert after < 0.05
        assert brier_score(learned[here], of.share, of.visits) < brier_score(raw[here], of.share, of.visits)


def test_rarely_visited_depth_uses_pooled_curve() -> None:
    given = examples(0, count=400, depths=2)
    rare = given.of((given.depth == 2) | (torch.arange(400) < 20))
    calibration = Calibration(curve=Isotonic(), least_visits=200)
    calibration.fit(rare)
    assert set(calibration.by_depth) == {2}
    logits, deep = torch.linspace(-5, 5, 20).double(), torch.full((20,), 3)
    every = Isotonic().fit(rare.logits, rare.share, rare.visits)
    assert torch.equal(calibration(logits, deep), Isotonic().predict(every, logits))
    assert not torch.equal(calibration(logits, deep - 1), calibration(logits, deep))


def test_fit_without_examples_changes_nothing() -> None:
    calibration, given = Calibration(curve=Isotonic(), least_visits=1), examples(0)
    none = given.of(torch.zeros(300, dtype=torch.bool))
    calibration.fit(none)
    assert not calibration.fitted
    calibration.fit(given)
    before = calibration(given.logits, given.depth)
    calibration.fit(none)
    assert torch.equal(calibration(given.logits, given.depth), before)


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: type(curve).__name__)
@pytest.mark.parametrize("fitted", [False, True])
def test_state_dict_loads_with_weights_only(curve: Curve, fitted: bool) -> None:
    saved, loaded = Calibration(curve=curve, least_visits=50), Calibration(curve=curve, least_visits=50)
    file, given = io.BytesIO(), examples(0, depths=2)
    if fitted:
        saved.fit(given)
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert loaded.fitted == fitted
    assert torch.equal(loaded(given.logits, given.depth), saved(given.logits, given.depth))


def test_cross_entropy_is_mean_over_visits_of_their_negative_log_likelihood() -> None:
    share, visits = torch.tensor([0.25, 1.0]), torch.tensor([4.0, 1.0])
    logits = torch.tensor([0.0, 2.0])
    ends = [0.5, 0.5, 0.5, 0.5, 1 / (1 + math.exp(-2))]
    expected = -sum(math.log(chance) for chance in ends) / 5
    assert cross_entropy(logits, share, visits).item() == pytest.approx(expected)


def test_calibration_error_and_brier_score_match_loops() -> None:
    given, bins = examples(3, count=200), 15
    predicted = (0.7 * given.logits).sigmoid()
    every = list(zip(predicted.tolist(), given.share.tolist(), given.visits.tolist(), strict=True))
    total = sum(visits for *_, visits in every)
    error = 0.0
    for b in range(bins):
        inside = [row for row in every if b / bins <= row[0] < (b + 1) / bins]
        weight = sum(visits for *_, visits in inside)
        if weight:
            gap = sum(v * p for p, _, v in inside) / weight - sum(v * s for _, s, v in inside) / weight
            error += weight / total * abs(gap)
    assert expected_calibration_error(predicted, given.share, given.visits, bins=bins) == pytest.approx(error)
    rollouts = [(p, float(k < round(s * v))) for p, s, v in every for k in range(int(v))]
    squared = sum((p - success) ** 2 for p, success in rollouts) / len(rollouts)
    assert brier_score(predicted, given.share, given.visits) == pytest.approx(squared)


def test_reliability_bins_match_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200, generator=generator, dtype=torch.float64) ** 3
    label = torch.rand(200, generator=generator) < 0.4
    found = reliability_bins(probability, label, bins=7)
    place = 0
    for lower in range(7):
        rows = [i for i in range(200) if lower / 7 <= probability[i] < (lower + 1) / 7]
        if rows:
            mean = sum(float(probability[i]) for i in rows) / len(rows)
            share = sum(bool(label[i]) for i in rows) / len(rows)
            assert found.predicted[place].item() == pytest.approx(mean)
            assert found.true[place].item() == pytest.approx(share)
            assert found.count[place].item() == len(rows)
            place += 1
    assert len(found.count) == place
    apart = expected_calibration_error(probability, label.double(), torch.ones_like(probability), bins=7)
    assert found.expected_error == pytest.approx(apart)


@pytest.mark.parametrize(
    ("probabilities", "bins", "message"), [([0.5], 0, "bins"), ([], 3, "no predictions"), ([1.5], 3, r"\[0, 1\]")]
)
def test_reliability_bins_reject_invalid_input(probabilities: list[float], bins: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reliability_bins(torch.tensor(probabilities), torch.ones(len(probabilities), dtype=torch.bool), bins=bins)


def test_zero_least_visits_raises() -> None:
    with pytest.raises(ValueError, match=r"least_visits.*0"):
        Calibration(curve=Isotonic(), least_visits=0)
