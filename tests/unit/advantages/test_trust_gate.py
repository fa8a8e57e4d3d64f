"""TrustGate: its weight by hand, its window, its state, and bitwise equality with the outcome without trust."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
import torch

from contrastive_reasoning.advantages import Advantage, GroupRelative, GRPOLambda, Process, TrustGate
from contrastive_reasoning.rewards import Credit, StepCredit

OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)
PROCESS = Process(outcome=OUTCOME, weight=0.5, epsilon=1e-6)
MASK = torch.ones(4, 6, dtype=torch.bool)
LONG = 10**9
"""The number of steps of a run whose last third is not reached."""


def gate(**changes: Any) -> TrustGate:
    settings: dict[str, Any] = {"advantage": PROCESS, "window": 2, "floor": 0.6, "span": 0.3, "total_steps": LONG}
    return TrustGate(**settings | changes)


def credit(auroc: float | None = None, disagreement: float | None = None) -> Credit:
    metrics = {"steps/return": 0.5, "steps/auroc_siblings": auroc, "critic/disagreement": disagreement}
    metrics["steps/auroc"] = 1.0  # across problems, which must not count
    steps = [[StepCredit(0, 2, value, depth=3)] for value in (0.1, 0.7, 0.3, 0.9)]
    return Credit(
        outcome=torch.tensor([1.0, 0.0, 0.0, 1.0]),
        parts={"oracle": torch.zeros(4)},
        steps=steps,
        metrics={name: value for name, value in metrics.items() if value is not None},
    )


def weights(made: TrustGate, *credits: Credit) -> list[float]:
    found = []
    for one in credits:
        made(one, MASK, 2)
        found.append(made.weight)
    return found


@pytest.mark.parametrize(
    ("auroc", "disagreement", "trust"),
    [
        (0.6, None, 0.0),
        (0.3, 0.0, 0.0),
        (0.75, None, 0.5),
        (0.75, 0.2, 0.4),
        (0.9, None, 1.0),
        (1.0, 0.0, 1.0),
        (1.0, 1.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_gate_weight_matches_hand_computation(auroc: float | None, disagreement: float | None, trust: float) -> None:
    given = credit(auroc, disagreement)
    assert weights(gate(), given, given, given) == pytest.approx([0.0, 0.0, 0.5 * trust])


def test_trust_uses_previous_window_and_changes_only_at_its_end() -> None:
    """The means of the two windows are 0.75 and 0.9; a batch without an AUROC is left out of the mean."""
    made = gate(window=3)
    given = [credit(a) for a in (0.7, 0.8, None, 0.9, 0.95, 0.85, 0.0, 0.0, 0.0, 0.9)]
    assert weights(made, *given) == pytest.approx([0, 0, 0, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.0])


def test_gate_weight_anneals_linearly_to_zero_in_last_third() -> None:
    made = gate(window=1, total_steps=9)
    found = weights(made, *[credit(1.0)] * 11)
    assert found == pytest.approx([0, *[0.5] * 5, 0.5 * 2 / 3, 0.5 * 1 / 3, 0.0, 0.0, 0.0])


def test_partial_trust_equals_advantage_with_that_weight() -> None:
    made, given = gate(), credit(0.75)
    weights(made, given, given)
    expected = Process(outcome=OUTCOME, weight=0.25, epsilon=1e-6)(given, MASK, 2)
    torch.testing.assert_close(made(given, MASK, 2), expected)
    assert not torch.equal(expected, OUTCOME(given, MASK, 2))


@pytest.mark.parametrize("other", [OUTCOME, GRPOLambda(outcome=OUTCOME, decay=0.9, floor=None)])
def test_gate_rejects_advantage_without_step_credit(other: Advantage) -> None:
    with pytest.raises(ValueError, match=type(other).__name__):
        gate(advantage=other)


def test_gate_without_trust_is_bitwise_equal_to_outcome() -> None:
    made = gate()
    for _ in range(5):
        got = made(credit(0.6), MASK, 2)
        assert got.numpy().tobytes() == OUTCOME(credit(), MASK, 2).numpy().tobytes(), "signs of zeros, too"


def test_gate_resumes_in_middle_of_window() -> None:
    given = [
        credit(a, d) for a, d in ((0.9, 0.1), (0.7, None), (0.8, 0.3), (None, 0.2), (0.85, 0.0), (0.6, 0.0), (0.9, 0))
    ]
    whole, stopped, resumed = gate(window=3), gate(window=3), gate(window=3)
    expected = weights(whole, *given)
    weights(stopped, *given[:4])
    file = io.BytesIO()
    torch.save(stopped.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert resumed.metrics == stopped.metrics
    assert weights(resumed, *given[4:]) == expected[4:]
    assert expected[-1] > 0


def test_begin_anew_drops_batches_of_former_critic() -> None:
    made = gate(window=2)
    found = weights(made, *[credit(0.9)] * 3)
    made.begin_anew()  # one batch into the second window
    assert weights(made, credit(0.6), credit(0.6), credit(0.9)) == pytest.approx([0.5, 0.5, 0.0])
    assert found == pytest.approx([0.0, 0.0, 0.5])


def test_missing_step_metrics_or_values_raise_but_missing_auroc_does_not() -> None:
    plain = Credit(outcome=torch.zeros(4), parts={"verifier": torch.zeros(4)})
    with pytest.raises(ValueError, match="verifier"):
        gate()(plain, MASK, 2)
    made, without_metrics = gate(), replace(credit(), metrics={})
    made(without_metrics, MASK, 2)
    with pytest.raises(ValueError, match=r"steps/auroc_siblings.*oracle"):
        made(without_metrics, MASK, 2)
    assert weights(gate(), *[credit()] * 3) == [0.0] * 3


@pytest.mark.parametrize(("name", "value"), [("window", 0), ("total_steps", 0), ("floor", 1.0), ("span", 0.0)])
def test_numbers_out_of_range_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        gate(**{name: value})
