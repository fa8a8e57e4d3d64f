from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from callbacks.online_critic import CriticUpdates
from contrastive_reasoning.critics import CriticBatch
from contrastive_reasoning.critics.replay_buffer import ReplayBuffer, replay_batch
from contrastive_reasoning.distributed import ranks, this_rank
from contrastive_reasoning.losses import BinaryNCE
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.rollout.sampling import derived_seed
from contrastive_reasoning.tasks.countdown.states import Known
from datamodules.hindsight_states import EveryGoal
from tests.two_ranks import on_ranks
from tests.unit.callbacks.online_kit import UPDATES, adamw, critic

LOSS = BinaryNCE(temperature=0.5)
CPU = torch.device("cpu")


class Sums:
    """A stream whose batches hold different pairs of numbers, of which only the sum is reachable."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def batch(self, number: int) -> CriticBatch:
        self.asked.append(number)
        first = torch.arange(8) + number
        states = torch.stack([first, torch.full((8,), 5), *[torch.full((8,), -1)] * 4], dim=1)
        positive = torch.eye(8, dtype=torch.bool)
        return CriticBatch(
            state_actions=states, goals=first + 5, positive=positive, candidate=torch.ones_like(positive)
        )


def met() -> ReplayBuffer:
    """A replay buffer of differences, which the stream does not contain."""
    states = ReplayBuffer(capacity=100)
    for large in range(20, 45):
        states.add((large, 3), [30], Known(frozenset({large - 3}), exhausted=True))
    return states


def updates(**changes: Any) -> CriticUpdates:
    own: dict[str, Any] = {"stream": Sums(), "first_replayed": 7, "loss": LOSS, "optimizer": adamw(3e-3)}
    made = CriticUpdates(**UPDATES | own | {"steps": 1, "max_skipped_steps": 1, "seed": 0} | changes)
    made.start(critic())
    return made


def loss_on(model: Any, batch: CriticBatch) -> torch.Tensor:
    return LOSS(model(batch.state_actions, batch.goals), batch.positive, batch.candidate)


def replay_pairs(seed: int, count: int = 8) -> CriticBatch:
    rng = np.random.default_rng(seed)
    return replay_batch(met().draw(count, rng), pairing=EveryGoal(), goal_range=(10, 50), rng=rng)


def test_critic_update_averages_stream_loss_and_replay_buffer_loss() -> None:
    made, expected = updates(steps=2, seed=4), critic()
    stepper = torch.optim.AdamW(expected.parameters(), lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for step, rate in enumerate((1.5e-3, 3e-3)):
        fresh = replay_pairs(derived_seed((4, "critic lessons", step, 1)))
        loss = 0.5 * loss_on(expected, Sums().batch(7 + step * 4 + 1)) + 0.5 * loss_on(expected, fresh)
        stepper.zero_grad()
        loss.backward()
        stepper.param_groups[0]["lr"] = rate
        stepper.step()
        losses.append(loss.item())
    assert made.train(met(), device=CPU, rank=1, ranks=4) == pytest.approx(losses[-1])
    for ours, theirs in zip(made.critic.parameters(), expected.parameters(), strict=True):
        assert_close(ours, theirs)


def test_critic_updates_reduce_loss_on_stream_and_replay_buffer() -> None:
    made = updates(steps=150)
    before = deepcopy(made.critic)
    made.train(met(), device=CPU, rank=0, ranks=1)
    for batch in (Sums().batch(3), replay_pairs(1, count=25)):
        assert loss_on(made.critic, batch) < 0.7 * loss_on(before, batch)


def test_each_rank_reads_its_own_stream_batches_from_first_replayed() -> None:
    made = updates(steps=3)
    with seeded(3):
        made.train(met(), device=CPU, rank=1, ranks=2)
        made.train(met(), device=CPU, rank=1, ranks=2)
        drawn = torch.rand(1)
    with seeded(3):
        assert torch.equal(torch.rand(1), drawn), "the global generator is left alone"
    assert made.stream.asked == [8, 10, 12, 14, 16, 18]  # pyright: ignore[reportAttributeAccessIssue]


class Spoiled:
    """Makes the loss of one call non-finite; its gradient stays finite."""

    def __init__(self, call: int, bad: float) -> None:
        self.call = call
        self.bad = bad
        self.calls = 0

    def __call__(self, *parts: Any) -> torch.Tensor:
        self.calls += 1
        return LOSS(*parts) + (self.bad if self.calls == self.call else 0.0)


def parts_of(made: CriticUpdates) -> list[torch.Tensor]:
    """Copies of the critic's parameters and the optimizer's first moments."""
    moments = [state["exp_avg"] for state in made.state_dict()["optimizer"]["state"].values()]
    return [part.detach().clone() for part in (*made.critic.parameters(), *moments)]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("spoiled", [Spoiled(3, float("inf")), "gradient"])
def test_non_finite_step_is_skipped_and_counted(spoiled: Any) -> None:
    """The second of three steps is spoiled. A step computes two losses, so its first one is call 3."""
    made = updates(loss=LOSS if spoiled == "gradient" else spoiled)
    if spoiled == "gradient":
        weight = next(made.critic.parameters())
        weight.register_hook(lambda gradient: gradient * (float("nan") if made.taken == 1 else 1.0))
    found, after = [], []
    for _ in range(3):
        found.append(made.train(met(), device=CPU, rank=0, ranks=1))
        after.append(parts_of(made))
    assert same(after[1], after[0]), "bit for bit as before"
    assert not same(after[2], after[1]), "and then it goes on, with other draws"
    assert [loss is None for loss in found] == [False, True, False]
    assert (made.taken, made.skipped.count) == (3, 1)
    resumed = updates()
    resumed.load_state_dict(made.state_dict())
    assert (resumed.taken, resumed.skipped.count) == (3, 1)


def test_train_returns_loss_of_last_step_not_skipped() -> None:
    shorter = updates(steps=2).train(met(), device=CPU, rank=0, ranks=1)
    assert updates(steps=3, loss=Spoiled(5, float("nan"))).train(met(), device=CPU, rank=0, ranks=1) == shorter


def spoiled_on_last_rank() -> dict[str, Any]:
    """Three steps; on the last rank only, a loss of the second step is infinite."""
    last = this_rank() == ranks() - 1
    made, after = updates(loss=Spoiled(3 if last else 0, float("inf"))), []
    for _ in range(3):
        made.train(met(), device=CPU, rank=this_rank(), ranks=ranks())
        after.append(parts_of(made))
    return {"after": after, "skipped": made.skipped.count}


@pytest.mark.whole
def test_all_ranks_skip_the_same_step(tmp_path: Path) -> None:
    first, second = on_ranks(spoiled_on_last_rank, tmp_path)
    assert first["skipped"] == second["skipped"] == 1
    for rank in (first, second):
        assert same(rank["after"][1], rank["after"][0])
        assert not same(rank["after"][2], rank["after"][1])
    assert same(first["after"][2], second["after"][2])
