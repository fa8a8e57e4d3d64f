from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.advantages import GroupRelative, MeanCentred, Potential
from contrastive_reasoning.rewards import Credit, StepCredit
from contrastive_reasoning.tasks.base import Verdict


def verdict(correct: bool) -> Verdict:
    return Verdict(status="ok" if correct else "wrong", reason="" if correct else "misses the target")


def potential(*, weight: float = 1.0, decay: float = 1.0, scale: float = 1.0) -> Potential:
    return Potential(outcome=GroupRelative(normalise_std=True, epsilon=1e-6), weight=weight, decay=decay, scale=scale)


def returns_of(steps: list[StepCredit], *, start: float, correct: bool, tokens: int, decay: float) -> list[float]:
    """Returns the λ-returns of one rollout, which shares its group with an empty one."""
    credit = Credit(
        outcome=torch.zeros(2, dtype=torch.float64),
        parts={},
        steps=[steps, []],
        starts=[start, 0.0],
        verdicts=[verdict(correct), verdict(False)],
    )
    return potential(decay=decay)(credit, torch.ones(2, tokens, dtype=torch.bool), 2)[0].tolist()


def by_tokens(credit: Credit, mask: torch.Tensor, decay: float) -> torch.Tensor:
    """The slow, obvious version: V after every token, then for every token the sum over the changes that follow it."""
    assert credit.steps is not None
    assert credit.illegal is not None
    assert credit.starts is not None
    assert credit.verdicts is not None
    expected = torch.zeros(mask.shape, dtype=torch.float64)
    for row, steps in enumerate(credit.steps):
        length = int(mask[row].sum())
        changes: list[tuple[int, float]] = []  # last token of the segment, the change of V there
        value = credit.starts[row]
        lost = False
        for token in range(length):
            ends = [
                step
                for step in [*steps, *credit.illegal[row]]
                if token == (step.last_token if step.settled_token is None else step.settled_token)
            ]
            if token == length - 1:
                changes.append((token, float(credit.verdicts[row].correct) - value))
            elif ends and not lost and (ends[0].lost or (ends[0].legal and ends[0].depth > 1)):
                after = 0.0 if ends[0].lost else value if ends[0].again else ends[0].value
                lost = ends[0].lost
                changes.append((token, after - value))
                value = after
        for token in range(length):
            later = [change for last, change in changes if last >= token]
            expected[row, token] = sum(decay**distance * change for distance, change in enumerate(later))
    return expected


def random_credit(rng: random.Random, rows: int, tokens: int) -> tuple[Credit, torch.Tensor]:
    """Returns steps with gaps between them, revisits, cut-off ends, and finished states in the middle as in a search.

    Some steps are settled by a later token and some are illegal. In some rollouts all steps from one token on are lost.
    """
    steps, illegal, lengths = [], [], []
    for _ in range(rows):
        borders = sorted(rng.sample(range(tokens), rng.choice([0, 2, 4, 6])))
        lost = tokens if rng.random() < 0.5 else rng.randrange(tokens)
        placed = [
            StepCredit(
                first,
                last,
                rng.random(),
                depth=rng.randint(1, 3),
                again=rng.random() < 0.2,
                legal=rng.random() < 0.7,
                settled_token=rng.choice([None, rng.randint(last, following - 1)]),
                lost=first >= lost,
            )
            for first, last, following in zip(borders[::2], borders[1::2], [*borders[2::2], tokens + 2], strict=False)
        ]
        steps.append([step for step in placed if step.legal])
        illegal.append([step for step in placed if not step.legal])
        lengths.append(rng.randint(borders[-1] + 1 if borders else 1, tokens))
    correct = [rng.random() < 0.5 for _ in range(rows)]
    credit = Credit(
        outcome=torch.tensor([float(c) for c in correct], dtype=torch.float64),
        parts={},
        steps=steps,
        illegal=illegal,
        starts=[rng.random() for _ in range(rows)],
        verdicts=[verdict(c) for c in correct],
    )
    return credit, torch.arange(tokens) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("seed", range(8))
def test_potential_matches_sum_for_every_token(seed: int) -> None:
    rng = random.Random(seed)
    credit, mask = random_credit(rng, rows=12, tokens=10)
    decay = rng.choice([0.0, 0.5, 0.95, 1.0])
    returns = potential(decay=decay)(credit, mask, 4)
    assert_close(returns, by_tokens(credit, mask, decay), rtol=1e-12, atol=1e-12)
    outcome = GroupRelative(normalise_std=True, epsilon=1e-6)(credit, mask, 4)
    mixed = potential(weight=0.3, decay=decay, scale=2.0)(credit, mask, 4)
    assert_close(mixed, 0.7 * outcome + 0.3 * 2.0 * returns, rtol=1e-12, atol=1e-12)


def test_lambda_returns_of_moves_match_hand_computation() -> None:
    """Three steps with values 0.75, 0.25 and 0.5; tokens 2 and 5 are separators, token 8 follows the last step."""
    steps = [StepCredit(0, 1, 0.75, depth=3), StepCredit(3, 4, 0.25, depth=2), StepCredit(6, 7, 0.5, depth=1)]
    got = returns_of(steps, start=0.5, correct=False, tokens=9, decay=0.0)
    assert got == [0.25, 0.25, -0.5, -0.5, -0.5, -0.25, -0.25, -0.25, -0.25]
    got = returns_of(steps, start=0.5, correct=False, tokens=9, decay=0.5)
    assert got == [0.25 - 0.25 - 0.0625] * 2 + [-0.5 - 0.125] * 3 + [-0.25] * 4


def test_revisited_state_earns_no_credit() -> None:
    there, back = StepCredit(0, 0, 0.25, depth=2), StepCredit(1, 1, 0.75, depth=3, again=True)
    away = StepCredit(2, 2, 0.5, depth=2)
    assert returns_of([there, back, away], start=0.5, correct=False, tokens=4, decay=0.0) == [-0.25, 0.0, 0.25, -0.5]


def test_leaving_dead_branch_regains_cost_of_entering() -> None:
    """A search enters a dead node, visits two of its leaves, and goes to another node, which is solved."""
    steps = [StepCredit(0, 0, 0.0, 2), StepCredit(1, 1, 0.0, 1), StepCredit(2, 2, 0.0, 1), StepCredit(3, 3, 1.0, 2)]
    got = returns_of([*steps, StepCredit(4, 4, 1.0, 1)], start=1.0, correct=True, tokens=6, decay=0.0)
    assert got == [-1.0, 1.0, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(("name", "value"), [("scale", 0.0), *product(["weight", "decay"], [-0.1, 1.1, float("nan")])])
def test_settings_out_of_range_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        potential(**{name: value})


def test_reward_without_verdicts_raises() -> None:
    unverified = Credit(outcome=torch.zeros(2), parts={}, steps=[[], []], starts=[0.0, 0.0])
    with pytest.raises(ValueError, match="verifier"):
        potential()(unverified, torch.ones(2, 1, dtype=torch.bool), 2)


Prefix = tuple[int, ...]
LENGTH, ACTIONS = 5, 2
TRAJECTORIES: list[Prefix] = list(product(range(ACTIONS), repeat=LENGTH))
PREFIXES = [prefix for length in range(LENGTH) for prefix in product(range(ACTIONS), repeat=length)]


class Game:
    """Five binary tokens under a softmax policy with separate logits for every prefix.

    Three facts depend on the prefix that a token completes: whether the token ends a step, how deep that step is
    (finished or not, as in a search), and whether its state is revisited. They are random, and so is the verdict on a
    trajectory.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.logits = torch.tensor([[rng.gauss(0, 1) for _ in range(ACTIONS)] for _ in PREFIXES], dtype=torch.float64)
        self.correct = {trajectory: rng.random() < 0.4 for trajectory in TRAJECTORIES}
        self.ends_step = {prefix: rng.random() < 0.7 for prefix in [*PREFIXES, *TRAJECTORIES]}
        self.depth = {prefix: rng.choice([1, 2, 3]) for prefix in [*PREFIXES, *TRAJECTORIES]}
        self.again = {prefix: rng.random() < 0.2 for prefix in [*PREFIXES, *TRAJECTORIES]}

    def log_probs(self, logits: Tensor) -> Tensor:
        """Returns the log-probs of each token of each trajectory."""
        table = logits.log_softmax(dim=1)
        rows = [[table[PREFIXES.index(path[:n]), path[n]] for n in range(LENGTH)] for path in TRAJECTORIES]
        return torch.stack([torch.stack(row) for row in rows])

    def chance(self, prefix: Prefix) -> float:
        """V^π: the policy's probability of success after the prefix."""
        if len(prefix) == LENGTH:
            return float(self.correct[prefix])
        probs = self.logits[PREFIXES.index(prefix)].softmax(dim=0).tolist()
        return sum(p * self.chance((*prefix, action)) for action, p in enumerate(probs))

    def credit(self, values: dict[Prefix, float], *, revisits: bool) -> Credit:

        def step(prefix: Prefix) -> StepCredit:
            place = len(prefix) - 1
            return StepCredit(place, place, values[prefix], self.depth[prefix], revisits and self.again[prefix])

        prefixes = [[path[:end] for end in range(1, LENGTH + 1)] for path in TRAJECTORIES]
        return Credit(
            outcome=torch.tensor([float(self.correct[path]) for path in TRAJECTORIES], dtype=torch.float64),
            parts={},
            steps=[[step(prefix) for prefix in row if self.ends_step[prefix]] for row in prefixes],
            starts=[values[()]] * len(TRAJECTORIES),
            verdicts=[verdict(self.correct[path]) for path in TRAJECTORIES],
        )

    def gradient(self, advantages: Tensor) -> Tensor:
        """E[Σ_t A_t ∇ log π(a_t | prefix)], every trajectory weighted by its exact probability."""
        logits = self.logits.clone().requires_grad_()
        log_probs = self.log_probs(logits)
        weights = log_probs.detach().sum(dim=1).exp()
        ((weights[:, None] * advantages * log_probs).sum()).backward()
        assert logits.grad is not None
        return logits.grad

    def bias(self, values: dict[Prefix, float], *, decay: float, revisits: bool = False) -> float:
        """Returns the largest difference between the gradients by the λ-returns and by R."""
        mask = torch.ones(len(TRAJECTORIES), LENGTH, dtype=torch.bool)
        credit = self.credit(values, revisits=revisits)
        advantage = Potential(outcome=MeanCentred(), weight=1.0, decay=decay, scale=1.0)
        returns = self.gradient(advantage(credit, mask, len(TRAJECTORIES)))
        return (returns - self.gradient(credit.outcome[:, None].expand(mask.shape))).abs().max().item()


def arbitrary_values(seed: int) -> dict[Prefix, float]:
    rng = random.Random(-seed - 1)
    return {prefix: rng.uniform(-2, 3) for prefix in [*PREFIXES, *TRAJECTORIES]}


@pytest.mark.parametrize("seed", range(5))
def test_decay_one_gradient_is_unbiased_for_any_values(seed: int) -> None:
    assert Game(seed).bias(arbitrary_values(seed), decay=1.0, revisits=True) < 1e-12


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_gradient_below_decay_one_is_unbiased_for_true_values_only(decay: float) -> None:
    game = Game(0)
    chances = {prefix: game.chance(prefix) for prefix in [*PREFIXES, *TRAJECTORIES]}
    assert game.bias(chances, decay=decay) < 1e-12
    assert game.bias(arbitrary_values(0), decay=decay) > 1e-3
