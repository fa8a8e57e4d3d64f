"""A small game with every trajectory enumerated: what the λ-returns do to the expected policy gradient."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.advantages import MeanCentred, Potential
from contrastive_reasoning.rewards import Credit, StepCredit
from contrastive_reasoning.tasks.base import Verdict

Prefix = tuple[int, ...]
LENGTH, ACTIONS = 5, 2
TRAJECTORIES: list[Prefix] = list(product(range(ACTIONS), repeat=LENGTH))
PREFIXES = [prefix for length in range(LENGTH) for prefix in product(range(ACTIONS), repeat=length)]


class Game:
    """Five binary tokens under a softmax policy with logits of its own for every prefix.

    Whether a token ends a step, how deep that step is (finished or not, as in a search) and whether its state was
    there before are facts of the prefix that it completes, drawn at random; so is the verdict on a trajectory.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.logits = torch.tensor([[rng.gauss(0, 1) for _ in range(ACTIONS)] for _ in PREFIXES], dtype=torch.float64)
        self.correct = {trajectory: rng.random() < 0.4 for trajectory in TRAJECTORIES}
        self.ends_step = {prefix: rng.random() < 0.7 for prefix in [*PREFIXES, *TRAJECTORIES]}
        self.depth = {prefix: rng.choice([1, 2, 3]) for prefix in [*PREFIXES, *TRAJECTORIES]}
        self.again = {prefix: rng.random() < 0.2 for prefix in [*PREFIXES, *TRAJECTORIES]}

    def log_probs(self, logits: Tensor) -> Tensor:
        """Of each token of each trajectory."""
        table = logits.log_softmax(dim=1)
        return torch.stack(
            [
                torch.stack([table[PREFIXES.index(path[:length]), path[length]] for length in range(LENGTH)])
                for path in TRAJECTORIES
            ]
        )

    def chance(self, prefix: Prefix) -> float:
        """V^π: the policy's chance of success after the prefix."""
        if len(prefix) == LENGTH:
            return float(self.correct[prefix])
        probs = self.logits[PREFIXES.index(prefix)].softmax(dim=0).tolist()
        return sum(p * self.chance((*prefix, action)) for action, p in enumerate(probs))

    def credit(self, values: dict[Prefix, float], *, revisits: bool) -> Credit:
        return Credit(
            outcome=torch.tensor([float(self.correct[path]) for path in TRAJECTORIES], dtype=torch.float64),
            parts={},
            steps=[
                [
                    StepCredit(end - 1, end - 1, values[path[:end]], self.depth[path[:end]], again)
                    for end in range(1, LENGTH + 1)
                    if self.ends_step[path[:end]]
                    for again in [revisits and self.again[path[:end]]]
                ]
                for path in TRAJECTORIES
            ],
            starts=[values[()]] * len(TRAJECTORIES),
            verdicts=[Verdict(status="ok" if self.correct[path] else "wrong", reason="") for path in TRAJECTORIES],
        )

    def gradient(self, advantages: Tensor) -> Tensor:
        """E[Σ_t A_t ∇ log π(a_t | prefix)], every trajectory by its exact probability."""
        logits = self.logits.clone().requires_grad_()
        log_probs = self.log_probs(logits)
        weights = log_probs.detach().sum(dim=1).exp()
        ((weights[:, None] * advantages * log_probs).sum()).backward()
        assert logits.grad is not None
        return logits.grad

    def bias(self, values: dict[Prefix, float], *, decay: float, revisits: bool = False) -> float:
        """The largest difference between the gradients by the λ-returns and by R."""
        mask = torch.ones(len(TRAJECTORIES), LENGTH, dtype=torch.bool)
        credit = self.credit(values, revisits=revisits)
        advantage = Potential(outcome=MeanCentred(), weight=1.0, decay=decay, scale=1.0)
        returns = self.gradient(advantage(credit, mask, len(TRAJECTORIES)))
        return (returns - self.gradient(credit.outcome[:, None].expand(mask.shape))).abs().max().item()


def arbitrary(seed: int) -> dict[Prefix, float]:
    rng = random.Random(-seed - 1)
    return {prefix: rng.uniform(-2, 3) for prefix in [*PREFIXES, *TRAJECTORIES]}


@pytest.mark.parametrize("seed", range(5))
def test_without_decay_any_values_leave_the_gradient_as_it_was(seed: int) -> None:
    assert Game(seed).bias(arbitrary(seed), decay=1.0, revisits=True) < 1e-12


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_the_policys_own_chances_leave_it_at_any_decay(decay: float) -> None:
    game = Game(0)
    chances = {prefix: game.chance(prefix) for prefix in [*PREFIXES, *TRAJECTORIES]}
    assert game.bias(chances, decay=decay) < 1e-12


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_wrong_values_do_not(decay: float) -> None:
    assert Game(0).bias(arbitrary(0), decay=decay) > 1e-3
