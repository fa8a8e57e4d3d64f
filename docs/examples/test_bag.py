"""The critic against its definition."""

import torch

from contrastive_reasoning.losses import dot
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps
from docs.examples.bag import BagCritic


def test_a_value_is_the_sum_over_the_numbers_that_are_left() -> None:
    critic = BagCritic(largest=50, dimension=8, similarity=dot, seed=0)
    problem = CountdownProblem(numbers=(3, 5, 2), target=13)
    text = "3 + 5 = 8\n8 + 2 = 10\n"
    steps = parse_steps(problem, text)
    assert len(steps) == 2
    states, goals = critic.encode_steps(problem, text, steps)
    with torch.no_grad():
        values = critic.pairs(states, goals)
        for value, step in zip(values, steps, strict=True):
            numbers = sum(critic.numbers.weight[number + 1] for number in step.state)
            torch.testing.assert_close(value, numbers @ critic.targets.weight[14])
