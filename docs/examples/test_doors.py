"""The critic estimates how random play goes on, without a search."""

import numpy as np
import torch

from contrastive_reasoning.losses import SymmetricInfoNCE, dot
from datamodules.contrastive_plays import ContrastivePlays, EveryDraw
from docs.examples.doors import Doors, DoorsCritic


def chances(game: Doors) -> torch.Tensor:
    """p(g | s) of a whole play, exactly: the power of the matrix of one move."""
    rooms = np.stack(np.divmod(np.arange(game.size**2), game.size), axis=1)
    after, legal = game.legal_moves(rooms)
    once = np.zeros((len(rooms), len(rooms)))
    for room, move in zip(*legal.nonzero(), strict=True):
        once[room, game.goal(after[room, move][None])[0]] += 1 / legal[room].sum()
    return torch.from_numpy(np.linalg.matrix_power(once, game.horizon))


def test_values_are_log_ratios_of_random_play() -> None:
    game = Doors(size=4, moves=4)
    data = ContrastivePlays(
        game=game,
        depth_shares=[1.0],
        plays=4,
        positives=EveryDraw(),
        batch_size=128,
        validation_batches=1,
        oracle_batch_size=1,
        workers=0,
        seed=0,
    )
    critic = DoorsCritic(size=4, dimension=32, similarity=dot, seed=0)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    loss = SymmetricInfoNCE(temperature=1.0)
    for step in range(600):
        batch = data.batch(step)
        optimizer.zero_grad()
        loss(critic(batch.state_actions, batch.goals), batch.positive, batch.candidate).backward()
        optimizer.step()
    exact = chances(game)
    wanted = (exact / exact.mean(dim=0)).log()
    with torch.no_grad():
        values = critic(torch.arange(16), torch.arange(16)).double()
    often = exact > 0.02
    errors = (values - wanted)[often]
    assert (errors - errors.mean()).abs().mean() < 0.15
    assert values[exact == 0].max() < values[often].min()
