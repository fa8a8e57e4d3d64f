"""A critic that learns the policy's own outcomes during GRPO: the embedded policy, real play, a small critic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from callbacks.outcome_critic import OutcomeUpdates, outcomes_of
from contrastive_reasoning.advantages import MeanCentred, Potential
from contrastive_reasoning.critics.calibration import cross_entropy
from contrastive_reasoning.critics.outcome_buffer import OutcomeBuffer, Outcomes
from contrastive_reasoning.rewards.critic import FRESH
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.tasks.countdown.states import encode_state
from experiments.run_folder.logger import RunFolderLogger
from experiments.stages.checkpoints import path_of
from experiments.stages.stage_checkpoint import Interrupted
from lightning_modules.grpo import GRPO
from tests.two_ranks import on_ranks
from tests.unit.callbacks.online_kit import (
    TASK,
    adamw,
    calibrated,
    critic,
    fit,
    flat,
    generation,
    learner,
    logged,
    outcomes,
    values_by_step,
)
from tests.unit.lightning_modules import grpo_kit, ranks_kit
from tests.unit.lightning_modules.grpo_kit import Recorder, Stop, assert_equal, saving, weights

CPU = torch.device("cpu")
NOT_JUDGED = Verdict(status="error", reason="")
ONE_STEP = Potential(outcome=MeanCentred(), weight=1.0, decay=0.0, scale=1.0)
Counted = dict[tuple[tuple[int, ...], int], tuple[int, float]]
"""(encoded state, target) of one rollout batch → number of rollouts through it, and how many of them succeed."""


def made() -> GRPO:
    return learner(calibrated(FRESH), ONE_STEP)


def watcher() -> Recorder:
    """Records rollouts, and the weights of the critic and of the policy after each batch. Comes after the critic."""
    return Recorder(lambda module, batch: (batch.rollouts, flat(module.reward.source.critic), weights(module)))


def slow_count(rollouts: RolloutBatch) -> Counted:
    found: dict[Any, list[bool]] = defaultdict(list)
    for row, text in enumerate(rollouts.texts):
        problem = rollouts.problem_of(row)
        own = {tuple(encode_state(problem.fields["numbers"]))}
        for step in TASK.parse_steps(problem, text):
            if step.legal:
                own.add(tuple(encode_state(step.state)))
        for state in own:
            found[state, problem.fields["target"]].append(TASK.verify(problem, text).correct)
    return {key: (len(ends), sum(ends) / len(ends)) for key, ends in found.items()}


def rows_of(found: Outcomes) -> Iterator[tuple[Any, Any]]:
    columns = (found.state_actions, found.goals, found.visits, found.share)
    for state, goal, visits, share in zip(*(column.tolist() for column in columns), strict=True):
        yield (tuple(state), goal), (visits, pytest.approx(share))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[GRPO, Any, list[RolloutBatch], Path]:
    """A learner after four batches, its outcome critic, its rollouts, and the folder of its run."""
    folder, loop, watched, whole = tmp_path_factory.mktemp("whole"), outcomes(), watcher(), made()
    fit(whole, 4, loop, watched, logger=RunFolderLogger(folder=folder), validation_problems=2)
    return whole, loop, [rollouts for rollouts, *_ in watched.seen], folder


def test_buffer_has_outcomes_of_last_training_batches_as_counted_by_loops(run: Any) -> None:
    """Validation problems are never learned from, though they are validated after every batch."""
    _, loop, drawn, folder = run
    kept = list(loop.buffer._batches)
    assert len(kept) == 2
    for batch, rollouts in zip(kept, drawn[-2:], strict=True):
        rows = list(rows_of(batch))
        assert dict(rows) == slow_count(rollouts)
        assert len(rows) == len(dict(rows)), "each once"
        assert {0.0} < {share for _, share in slow_count(rollouts).values()}, "some succeed"
    values = logged(folder)
    assert values.keys() == {"loss", "buffer_states", "seconds", "skipped_steps"}
    assert all(list(each) == [1, 2, 3, 4] for each in values.values())
    assert values["buffer_states"][4] == len(loop.buffer)
    held_out = {problem.id for problem in TASK.problems("validation")}
    assert not held_out & {problem.id for rollouts in drawn for problem in rollouts.problems}


def test_rollouts_that_were_not_judged_do_not_count(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = run[2][0]
    verdicts = verdicts_of(TASK, rollouts)
    verdicts[1] = NOT_JUDGED
    monkeypatch.setattr("callbacks.outcome_critic.verdicts_of", lambda *_: verdicts)
    found = outcomes_of(rollouts, TASK, critic())
    assert found is not None
    starts = found.visits[(found.state_actions >= 0).sum(dim=1) == 3].tolist()
    assert starts == [rollouts.group_size - 1, *[rollouts.group_size] * (len(rollouts.problems) - 1)]
    verdicts[:] = [NOT_JUDGED] * len(rollouts)
    assert outcomes_of(rollouts, TASK, critic()) is None


def test_batch_is_valued_by_network_of_batches_before(monkeypatch: pytest.MonkeyPatch) -> None:
    module, watched, valued = made(), watcher(), list[Tensor]()
    source: Any = module.reward
    original = source.source.state_logits

    def state_logits(*args: Any) -> Any:
        valued.append(flat(source.source.critic))
        return original(*args)

    monkeypatch.setattr(source.source, "state_logits", state_logits)
    start, policy = flat(source.source.critic), weights(module)
    fit(module, 3, outcomes(), watched)
    _, critics, policies = zip(*watched.seen, strict=True)
    assert_equal(valued, [start, *critics[:-1]])
    assert not any(torch.equal(one, other) for one, other in zip(valued, critics, strict=True))
    assert torch.equal(policies[0], policy), "the batch that only an unfitted network valued trains no policy"
    assert not torch.equal(policies[1], policy)


@pytest.mark.parametrize("stopped_after", [1, 2, 3])
def test_resumed_run_equals_uninterrupted_run_bitwise(run: Any, tmp_path: Path, stopped_after: int) -> None:
    whole, whole_loop, _, folder = run
    stopping = saving(tmp_path / "stopped")
    with pytest.raises(Interrupted):
        fit(made(), 4, outcomes(), Stop(stopped_after, stopping), stopping, validation_problems=2)
    resumed, loop, logger = made(), outcomes(), RunFolderLogger(folder=tmp_path / "resumed")
    checkpoint = path_of(tmp_path / "stopped", stopped_after)
    fit(resumed, 4, loop, resume=checkpoint, logger=logger, validation_problems=2)
    assert torch.equal(weights(resumed), weights(whole))
    assert_close(loop.state_dict(), whole_loop.state_dict(), rtol=0, atol=0)
    ours, theirs = (cast(Any, one.reward) for one in (resumed, whole))
    assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    assert torch.equal(flat(ours.source.critic), flat(loop.updates.critic))
    found, expected = (values_by_step(each) for each in (tmp_path / "resumed", folder))
    assert found == {key: value for key, value in expected.items() if key[0] > stopped_after}


def on_a_rank() -> dict[str, Any]:
    """Two ranks train a policy with an outcome critic on real plays, each on its share of the problems."""
    module, loop, watched = made(), outcomes(), watcher()
    data = grpo_kit.prompts(4, 3, TASK, 2)
    ranks_kit.fit("ddp", module, data, generation(), loop, watched, limit_val_batches=0)
    drawn = [rollouts for rollouts, *_ in watched.seen]
    problems = [problem.id for rollouts in drawn for problem in rollouts.problems]
    states = sum(len(slow_count(rollouts)) for rollouts in drawn[-2:])
    return {"loop": loop.state_dict(), "policy": weights(module), "problems": problems, "states": states}


@pytest.mark.whole
def test_networks_of_all_ranks_are_equal_and_learn_from_all_rollouts(tmp_path: Path) -> None:
    first, second = on_ranks(on_a_rank, tmp_path)
    assert first["problems"] != second["problems"]
    assert_close(first["loop"], second["loop"], rtol=0, atol=0)
    assert torch.equal(first["policy"], second["policy"])
    kept = [len(batch["share"]) for batch in first["loop"]["buffer"]["batches"]]
    assert sum(kept) == first["states"] + second["states"]


def toy(numbers: Sequence[int]) -> Outcomes:
    """States (n, 3) of one target, from which nine of ten rollouts succeed if n is small, and else one."""
    share = torch.tensor([0.9 if number < 30 else 0.1 for number in numbers])
    states = torch.tensor([encode_state((number, 3)) for number in numbers])
    goals, visits = torch.full((len(numbers),), 30), torch.tensor([1.0 + number % 3 for number in numbers])
    return Outcomes(state_actions=states, goals=goals, share=share, visits=visits)


def filled(*parts: Outcomes) -> OutcomeBuffer:
    buffer = OutcomeBuffer(batches=len(parts))
    for part in parts:
        buffer.add(part)
    return buffer


def updates(**changes: Any) -> OutcomeUpdates:
    limits: dict[str, Any] = {"steps": 1, "max_skipped_steps": 1, "seed": 0, "batch_size": 16}
    made = OutcomeUpdates(**limits | {"optimizer": adamw(3e-3), "temperature": 0.5} | changes)
    made.start(critic())
    return made


def test_network_learns_outcomes_that_depend_on_the_state() -> None:
    """On states that it did not see, its loss falls below that of the best constant."""
    learned, unseen = updates(steps=200), toy(range(11, 50, 3))
    seen = [number for number in range(10, 50) if number not in range(11, 50, 3)]
    learned.train(filled(toy(seen[::2]), toy(seen[1::2])), device=CPU, rank=0, ranks=1)
    chance = (unseen.share * unseen.visits).sum() / unseen.visits.sum()
    constant = cross_entropy(chance.logit().expand(len(unseen)), unseen.share, unseen.visits)
    assert learned.loss_of({"outcomes": unseen}, CPU) < 0.75 * constant


def test_update_is_step_on_cross_entropy_weighted_by_visits() -> None:
    numbers = [12, 20, 35]
    made, expected, drawn = updates(), critic(), toy(numbers)
    total, loss = drawn.visits.sum(), torch.zeros(())
    for row in range(3):
        logit = expected.pairs(drawn.state_actions[row : row + 1], drawn.goals[row : row + 1])[0] / 0.5
        chance, share = logit.sigmoid(), drawn.share[row]
        loss = loss - drawn.visits[row] / total * (share * chance.log() + (1 - share) * (1 - chance).log())
    assert_close(made.loss_of({"outcomes": drawn}, CPU), loss)


def test_draws_are_a_function_of_seed_and_step() -> None:
    buffer = filled(toy(range(10, 50)))

    def losses(**changes: Any) -> list[float | None]:
        made = updates(**changes)
        return [made.train(buffer, device=CPU, rank=0, ranks=1) for _ in range(3)]

    assert losses() == losses()
    assert losses() != losses(seed=1)


@pytest.mark.parametrize(("name", "make"), [("buffer_batches", outcomes), ("batch_size", updates), ("steps", updates)])
def test_sizes_below_one_raise(name: str, make: Any) -> None:
    with pytest.raises(ValueError, match=name):
        make(**{name: 0})
