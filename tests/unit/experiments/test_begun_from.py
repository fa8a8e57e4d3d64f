"""Runs that begin from policies of their own: the key of the policy, and that of a reference, which is that policy."""

from __future__ import annotations

import pytest

from experiments.analysis.arms import arms_by, is_begun_from
from experiments.compare import notes
from tests.unit.experiments.comparison_kit import finished


@pytest.mark.parametrize(
    ("name", "begun"),
    [
        ("policy.pretrained", True),
        ("module.policy.pretrained", True),
        ("module.reference.pretrained", True),
        ("critic.encoder.pretrained", False),
        ("other_policy.pretrained", False),
    ],
)
def test_where_starts_may_differ_a_reference_may_too(name: str, begun: bool) -> None:
    starts = ((0, "first"), (1, "second"))
    runs = [finished("a", seed=seed, metrics={}, params={name: start}) for seed, start in starts]
    arms = arms_by(runs, ["experiment"])
    assert is_begun_from(name) == begun
    assert (f"{name} (first, second)" in " ".join(notes(arms, starts_may_differ=True))) != begun
    assert f"{name} (first, second)" in " ".join(notes(arms))
