"""A critic that is trained during GRPO, in a real Trainer: the embedded policy, real play, a small critic."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from lightning import Callback
from torch import Tensor

from contrastive_reasoning.advantages import MeanCentred, Potential, Process, Subsampled, TrustGate
from contrastive_reasoning.critics import EnsembleCritic, NumericV1, save_critic
from contrastive_reasoning.losses import BinaryNCE, dot
from contrastive_reasoning.rewards import VerifierReward, WeightedSum
from contrastive_reasoning.rewards.critic import critic_within
from contrastive_reasoning.tasks.countdown import reachable_targets
from experiments.run_folder.logger import RunFolderLogger
from experiments.stages.checkpoints import path_of
from experiments.stages.stage_checkpoint import Interrupted
from lightning_modules.grpo import GRPO
from tests.unit.callbacks.online_kit import (
    TASK,
    calibrated,
    critic,
    fit,
    flat,
    learner,
    logged,
    online,
    reward,
    values_by_step,
)
from tests.unit.lightning_modules.grpo_kit import Recorder, Stop, assert_equal, saving, weights


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("critic")
    save_critic(critic(), folder, {})
    return str(folder)


def test_scoring_critic_changes_only_at_refresh(checkpoint: str, tmp_path: Path) -> None:
    loop, scoring = online(), Recorder(lambda module, _: flat(module.reward.critic))
    fit(learner(reward(checkpoint)), 5, loop, scoring, logger=RunFolderLogger(folder=tmp_path))
    same = [torch.equal(first, second) for first, second in pairwise(scoring.seen)]
    assert same == [True, False, True, False], "refreshed before the third and the fifth batch"
    assert torch.equal(scoring.seen[0], flat(critic())), "until then as it was pretrained"
    assert not torch.equal(scoring.seen[-1], flat(loop.updates.critic)), "one update ahead"
    assert loop.updates.taken == 10
    values = logged(tmp_path)
    assert values["refreshes"] == {1: 0, 2: 0, 3: 1, 4: 1, 5: 2}
    assert list(values["loss"]) == list(values["seconds"]) == [1, 2, 3, 4, 5]
    assert 20 < values["buffer_states"][5] <= 60
    assert values["auroc_before"].keys() == values["auroc_after"].keys() <= {3, 5}
    assert values["auroc_before"] != values["auroc_after"]


def test_copy_learns_after_every_nth_batch(checkpoint: str) -> None:
    loop = online(learn_every=2)
    learnt = Recorder(lambda module, _: loop.updates.taken)
    fit(learner(reward(checkpoint)), 5, loop, learnt)
    assert learnt.seen == [0, 2, 2, 4, 4], "two updates after the second and after the fourth"


PROCESS = Process(outcome=MeanCentred(), weight=1.0, epsilon=1e-6)
ONE_STEP = Potential(outcome=MeanCentred(), weight=1.0, decay=0.0, scale=1.0)


@pytest.fixture(scope="module", params=[(reward, PROCESS), (calibrated, ONE_STEP)], ids=["raw", "calibrated"])
def uninterrupted(request: pytest.FixtureRequest, checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that makes a learner; a learner after five steps; its online critic; the folder of its run."""
    shaped, advantage = request.param
    folder, loop = tmp_path_factory.mktemp("whole"), online()

    def made() -> GRPO:
        return learner(shaped(checkpoint), advantage)

    whole = made()
    fit(whole, 5, loop, logger=RunFolderLogger(folder=folder))
    return made, whole, loop, folder


@pytest.mark.parametrize("stopped_after", [2, 3], ids=["a refresh is due", "between refreshes"])
def test_resumed_run_equals_uninterrupted_run_bitwise(uninterrupted: Any, tmp_path: Path, stopped_after: int) -> None:
    made, whole, whole_loop, folder = uninterrupted
    stopping = saving(tmp_path / "stopped")
    with pytest.raises(Interrupted, match=f"step {stopped_after}"):
        fit(made(), 5, online(), Stop(stopped_after, stopping), stopping)
    resumed, loop, logger = made(), online(), RunFolderLogger(folder=tmp_path / "resumed")
    fit(resumed, 5, loop, resume=path_of(tmp_path / "stopped", stopped_after), logger=logger)
    assert torch.equal(weights(resumed), weights(whole))
    scoring, whole_scoring = (critic_within(each.reward).critic for each in (resumed, whole))
    assert torch.equal(flat(scoring), flat(whole_scoring))
    assert not torch.equal(flat(scoring), flat(critic())), "refreshed"
    assert_equal(loop.state_dict(), whole_loop.state_dict())
    assert torch.equal(flat(loop.updates.critic), flat(whole_loop.updates.critic))
    ours, theirs = (values_by_step(run) for run in (tmp_path / "resumed", folder))
    assert ours == {key: value for key, value in theirs.items() if key[0] > stopped_after}


def test_too_many_non_finite_critic_steps_raise_and_save_batches(checkpoint: str, tmp_path: Path) -> None:
    class NoNumber(BinaryNCE):
        def __call__(self, scores: Tensor, positive: Tensor, candidate: Tensor) -> Tensor:
            return super().__call__(scores, positive, candidate) * float("nan")

    loop = online(loss=NoNumber(temperature=1.0), max_skipped_steps=1)
    path = tmp_path / "skipped" / "step=000001.rank0.pt"
    with pytest.raises(FloatingPointError, match=f"1 steps of the critic.*step 1 .*{path}"):
        fit(learner(reward(checkpoint)), 2, loop, root=tmp_path)
    assert torch.load(path, weights_only=True).keys() == {"replayed", "met"}
    assert torch.equal(flat(loop.updates.critic), flat(critic())), "as it was pretrained"


def test_online_critic_affects_policy_only_through_reward(checkpoint: str) -> None:
    """Training a critic of weight 0 does not change the policy. With a weight it does, after the first refresh."""

    def trained(shaped: Any, *callbacks: Callback) -> Tensor:
        module = learner(shaped)
        fit(module, 3, *callbacks)
        return weights(module)

    without = trained(reward(checkpoint, weight=0.0), online(refresh_every=1))
    assert torch.equal(without, trained(VerifierReward(task=TASK)))
    together = trained(reward(checkpoint), online(refresh_every=1))
    assert not torch.equal(together, trained(reward(checkpoint)))


def test_buffer_has_only_states_of_the_policy_with_correct_targets(checkpoint: str) -> None:
    loop, seen = online(buffer_states=10_000), Recorder(lambda _, batch: batch.rollouts)
    fit(learner(reward(checkpoint)), 2, loop, seen, group_size=96)
    written: set[tuple[int, ...]] = set()
    for rollouts in seen.seen:
        for row, text in enumerate(rollouts.texts):
            problem = rollouts.problem_of(row)
            states = [problem.fields["numbers"], *(step.state for step in TASK.parse_steps(problem, text))]
            written |= {tuple(sorted(state, reverse=True)) for state in states}
    buffered = loop.buffer._states.values()
    assert any(each.known.exhausted for each in buffered)
    assert not all(each.known.exhausted for each in buffered)
    for each in buffered:
        assert each.state in written
        assert len(each.state) > 1
        assert each.known.reached
        assert each.known.reached <= reachable_targets(each.state)
        assert not each.known.exhausted or each.known.reached == reachable_targets(each.state)


def set_up(shaped: Any, advantage: Any = None) -> None:
    no_trainer, module = cast(Any, None), SimpleNamespace(reward=shaped, advantage=advantage)
    online().setup(no_trainer, module, "fit")


def test_online_critic_rejects_rewards_whose_critic_cannot_be_trained(checkpoint: str) -> None:
    v1, several = reward(checkpoint), reward(checkpoint)
    v1.critic = NumericV1(digit_dimension=2, hidden_dimension=4, hidden_layers=1, dimension=2, similarity=dot, seed=0)
    several.critic = EnsembleCritic(member=critic, size=2, seed=0)
    two = WeightedSum(rewards={name: reward(checkpoint) for name in "ab"}, weights={"a": 1.0, "b": 1.0})
    for shaped, named in (
        (several, "ensemble.*critic=joint"),
        (VerifierReward(task=TASK), "0.*reward=critic"),
        (two, "2.*reward=critic"),
        (v1, "NumericV1.*critic=joint"),
    ):
        with pytest.raises(ValueError, match=named):
            set_up(shaped)


def gate(window: int) -> TrustGate:
    return TrustGate(advantage=ONE_STEP, window=window, floor=0.6, span=0.3, total_steps=10**6)


def test_trust_gate_window_not_below_refresh_interval_raises(checkpoint: str) -> None:
    for advantage in (gate(2), Subsampled(advantage=gate(2), share=1.0, seed=0)):
        with pytest.raises(ValueError, match=r"online\.refresh_every=2.*advantage\.window=2"):
            set_up(calibrated(checkpoint), advantage)


def test_refresh_resets_trust_gate_and_calibration_curves(checkpoint: str) -> None:
    def sizes(module: Any, _: Any) -> tuple[int, int, int]:
        """Of what the reward and the gate remember."""
        return (
            len(module.reward.seen),
            len(module.advantage.advantage.disagreements),
            int(module.reward.foreseen is not None),
        )

    kept = Recorder(sizes)
    within = Subsampled(advantage=gate(3), share=1.0, seed=0)
    fit(learner(calibrated(checkpoint), within), 12, online(refresh_every=5), kept)
    batches, judged, foreseen = zip(*kept.seen, strict=True)
    assert batches == (1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2), "what was foreseen and the batch at hand, at most two"
    assert foreseen == (0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0)
    assert judged == (0, 1, 2, 0, 1, 1, 2, 0, 1, 2, 1, 2), "of a window that a refresh cuts nothing is left"
