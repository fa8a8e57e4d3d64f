"""The values of a few lengths, by hand."""

from contrastive_reasoning.tasks import Problem
from docs.examples.brevity import brevity


def test_shorter_is_better_and_nothing_is_below_zero() -> None:
    problem = Problem(id="1", prompt="", answer="")
    rewards = [brevity(problem, "x" * length, longest=4) for length in (0, 1, 4, 9)]
    assert rewards == [1.0, 0.75, 0.0, 0.0]
