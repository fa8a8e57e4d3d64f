"""A critic that goes on learning beside GRPO, in a real Trainer: the embedded policy, real play, a small critic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from torch import Tensor

from callbacks.critic_lessons import CriticLessons
from callbacks.health import Health
from callbacks.online_critic import OnlineCritic
from callbacks.rollout_generation import RolloutGeneration
from contrastive_reasoning.advantages import GroupRelative, MeanCentred, Process
from contrastive_reasoning.critics import JointCritic, NumericV1, save_critic
from contrastive_reasoning.losses import BinaryNCE, dot
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import load_policy
from contrastive_reasoning.rewards import CriticReward, VerifierReward, WeightedSum
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown import CountdownTask, reachable_targets
from datamodules.hindsight_states import HindsightStates
from datamodules.pairing import EveryGoal
from datamodules.reasoning_prompts import ReasoningPrompts
from experiments.rollout_checkpoint import RolloutCheckpoint
from experiments.run_folder import RunFolderLogger, read_metrics
from lightning_modules.grpo import GRPO
from lightning_modules.optim import AdamW
from tests.unit.lightning_modules.grpo_kit import Metrics, module, weights

TASK = CountdownTask(
    style="direct",
    train="generated",
    test="generated",
    longproc_dir=None,
    counts=[3],
    number_range=[1, 30],
    target_range=[10, 50],
    max_search_lines=None,
    train_problems=24,
    validation_problems=2,
    test_problems=2,
    seed=0,
)
STREAM = HindsightStates(
    task=TASK,
    numbers=3,
    number_range=[1, 30],
    target_range=[10, 50],
    depth_shares=[0.4, 0.4, 0.2],
    exhaust_up_to=3,
    pairing=EveryGoal(),
    batch_size=16,
    validation_batches=1,
    oracle_batch_size=64,
    workers=0,
    seed=0,
)
"""Shared: its batches are a function of their number."""


def critic(seed: int = 0) -> JointCritic:
    return JointCritic(
        value_dimension=4, width=16, blocks=1, dimension=8, join_dimension=4, pairs_per_chunk=1000, seed=seed
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("critic")
    save_critic(critic(), folder, {})
    return str(folder)


def reward(checkpoint: str, weight: float = 0.5) -> CriticReward:
    return CriticReward(
        outcome=VerifierReward(task=TASK),
        task=TASK,
        critic=critic(seed=1),
        checkpoint=checkpoint,
        weight=weight,
        temperature=1.0,
        batch_size=1024,
    )


def adamw(learning_rate: float) -> AdamW:
    return AdamW(
        learning_rate=learning_rate,
        betas=[0.9, 0.999],
        epsilon=1e-8,
        weight_decay=0.01,
        warmup_steps=2,
        schedule="constant",
        total_steps=None,
    )


def online(**changes: Any) -> OnlineCritic:
    lessons = {name: changes.pop(name) for name in ("steps", "seed") if name in changes}
    settings: dict[str, Any] = {"learn_every": 1, "refresh_every": 2, "buffer_states": 60}
    return OnlineCritic(task=TASK, lessons=CriticLessons(**(LESSONS | lessons)), **(settings | changes))


LESSONS: dict[str, Any] = {
    "stream": STREAM,
    "first_replayed": 100,
    "pairing": EveryGoal(),
    "goal_range": [10, 50],
    "loss": BinaryNCE(temperature=1.0),
    "optimizer": adamw(1e-2),
    "steps": 2,
    "seed": 5,
}


def policy() -> CausalLMPolicy:
    """One that writes legal plays."""
    return load_policy(
        pretrained="embedded:llama_countdown",
        architecture=None,
        weights_dtype="float32",
        compute_dtype="float32",
        lora=None,
        chat_template=False,
        trust_remote_code=False,
        gradient_checkpointing=False,
        compiled=False,
        kernels="torch",
        seed=0,
    )


def learner(shaped: Any, advantage: Any = None) -> GRPO:
    return module(
        policy=policy(),
        task=TASK,
        reward=shaped,
        advantage=advantage or GroupRelative(normalise_std=True, epsilon=1e-6),
        optimizer=adamw(1e-4),
        microbatch_tokens=4096,
    )


def fit(
    trained: GRPO,
    steps: int,
    *callbacks: Callback,
    resume: Path | None = None,
    group_size: int = 6,
    logger: Any = False,
) -> None:
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=32, stop=[])
    greedy = Sampling(temperature=0.0, top_k=None, top_p=1.0, max_tokens=32, stop=[])
    generation = RolloutGeneration(
        engine=Engine(max_batch_tokens=100_000),
        group_size=group_size,
        sampling=sampling,
        greedy=greedy,
        validation_samples=0,
        seed=3,
    )
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        limit_train_batches=steps,
        limit_val_batches=0,
        log_every_n_steps=1,
        logger=logger,
        callbacks=[generation, *callbacks],
        enable_checkpointing=any(isinstance(callback, RolloutCheckpoint) for callback in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=False,
    )
    data = ReasoningPrompts(
        task=TASK, problems_per_step=4, validation_problems=0, steps=steps, max_prompt_tokens=None, seed=0
    )
    trainer.fit(trained, datamodule=data, ckpt_path=resume, weights_only=None if resume is None else True)


def flat(part: Any) -> Tensor:
    return torch.cat([tensor.flatten().double() for tensor in part.state_dict().values()])


class Scoring(Callback):
    """The weights that scored each batch."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.weights.append(flat(pl_module.reward.critic))


class Stop(Callback):
    """Ends a run as an interruption would, after a number of batches."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        trainer.should_stop = pl_module.rollout_step == self.after


def logged(folder: Path) -> dict[str, dict[int, float]]:
    """What was logged of the online critic, by step."""
    values: dict[str, dict[int, float]] = {}
    for metric in read_metrics(folder):
        if metric.name.startswith("train/online_critic/"):
            values.setdefault(metric.name.rpartition("/")[2], {})[metric.step] = metric.value
    return values


def test_the_copy_that_scores_changes_at_a_refresh_only(checkpoint: str, tmp_path: Path) -> None:
    loop, scoring = online(), Scoring()
    fit(learner(reward(checkpoint)), 5, loop, scoring, logger=RunFolderLogger(folder=tmp_path))
    same = [torch.equal(first, second) for first, second in zip(scoring.weights, scoring.weights[1:], strict=False)]
    assert same == [True, False, True, False], "refreshed before the third and the fifth batch"
    assert torch.equal(scoring.weights[0], flat(critic())), "until then as it was pretrained"
    assert not torch.equal(scoring.weights[-1], flat(loop.lessons.critic)), "one lesson ahead"
    assert loop.lessons.taken == 10
    values = logged(tmp_path)
    assert values["refreshes"] == {1: 0, 2: 0, 3: 1, 4: 1, 5: 2}
    assert list(values["loss"]) == list(values["seconds"]) == [1, 2, 3, 4, 5]
    assert 20 < values["buffer_states"][5] <= 60
    assert values["auroc_before"].keys() == values["auroc_after"].keys() <= {3, 5}
    assert values["auroc_before"] != values["auroc_after"]


@pytest.mark.parametrize("stopped_after", [2, 3], ids=["a refresh is due", "between refreshes"])
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(checkpoint: str, tmp_path: Path, stopped_after: int) -> None:
    def saving(name: str) -> RolloutCheckpoint:
        return RolloutCheckpoint(path=tmp_path / name, every=1)

    def log(name: str) -> RunFolderLogger:
        return RunFolderLogger(folder=tmp_path / name)

    process = Process(outcome=MeanCentred(), weight=1.0, epsilon=1e-6)
    whole, whole_loop = learner(reward(checkpoint), process), online()
    fit(whole, 5, whole_loop, logger=log("whole"))
    fit(learner(reward(checkpoint), process), 5, online(), Stop(stopped_after), saving("stopped.ckpt"))
    resumed, loop = learner(reward(checkpoint), process), online()
    fit(resumed, 5, loop, resume=tmp_path / "stopped.ckpt", logger=log("resumed"))
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.equal(flat(loop.lessons.critic), flat(whole_loop.lessons.critic))
    assert torch.equal(flat(resumed.reward.critic), flat(whole.reward.critic))
    first, second = (each.lessons.state_dict()["optimizer"]["state"] for each in (loop, whole_loop))
    assert all(torch.equal(first[i][name], second[i][name]) for i in first for name in first[i])
    for name, tensor in loop.buffer.state_dict().items():
        assert torch.equal(tensor, whole_loop.buffer.state_dict()[name]), name
    first, second = (read_metrics(tmp_path / name) for name in ("resumed", "whole"))
    ours, theirs = ({(m.step, m.name): m.value for m in each if without_clock(m.name)} for each in (first, second))
    assert ours == {key: value for key, value in theirs.items() if key[0] > stopped_after}


def without_clock(name: str) -> bool:
    return "seconds" not in name and "throughput" not in name


def test_it_reaches_the_policy_through_the_reward_alone(checkpoint: str) -> None:
    """A critic of no weight may learn what it likes; and one that has weight is felt after the first refresh."""
    plain, without, alone, together = (
        learner(VerifierReward(task=TASK)),
        learner(reward(checkpoint, weight=0.0)),
        learner(reward(checkpoint)),
        learner(reward(checkpoint)),
    )
    fit(plain, 3)
    fit(without, 3, online(refresh_every=1))
    fit(alone, 3)
    fit(together, 3, online(refresh_every=1))
    assert torch.equal(weights(plain), weights(without))
    assert not torch.equal(weights(alone), weights(together))


def test_those_that_watch_change_nothing_of_it(checkpoint: str) -> None:
    watched, alone = learner(reward(checkpoint)), learner(reward(checkpoint))
    loop, other = online(), online()
    fit(watched, 3, loop, Health(limits={"train/online_critic/buffer_states": [0.0, None]}), Metrics())
    fit(alone, 3, other)
    assert torch.equal(weights(watched), weights(alone))
    assert torch.equal(flat(loop.lessons.critic), flat(other.lessons.critic))


def test_what_it_draws_depends_on_the_seed(checkpoint: str) -> None:
    def lessons(seed: int) -> Tensor:
        loop = online(seed=seed)
        fit(learner(reward(checkpoint)), 2, loop)
        return flat(loop.lessons.critic)

    assert torch.equal(lessons(5), lessons(5))
    assert not torch.equal(lessons(5), lessons(6))


def test_what_the_buffer_knows_is_true_and_the_policys_own(checkpoint: str) -> None:
    class Written(Callback):
        def __init__(self) -> None:
            self.states: set[tuple[int, ...]] = set()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            for row, text in enumerate(batch.rollouts.texts):
                problem = batch.rollouts.problem_of(row)
                steps: Sequence[Step] = TASK.parse_steps(problem, text)
                self.states |= {tuple(sorted(step.state, reverse=True)) for step in steps}
                self.states.add(tuple(sorted(problem.fields["numbers"], reverse=True)))

    loop, written = online(buffer_states=10_000), Written()
    fit(learner(reward(checkpoint)), 2, loop, written, group_size=96)
    met = loop.buffer._met.values()
    assert any(each.known.exhausted for each in met)
    assert not all(each.known.exhausted for each in met)
    for each in met:
        assert each.state in written.states
        assert len(each.state) > 1
        assert each.known.reached
        assert each.known.reached <= reachable_targets(each.state)
        assert not each.known.exhausted or each.known.reached == reachable_targets(each.state)


def test_a_reward_that_it_has_nothing_to_teach_is_refused(checkpoint: str) -> None:
    digits = {"digit_dimension": 2, "hidden_dimension": 4, "hidden_layers": 1, "dimension": 2}
    v1 = reward(checkpoint)
    v1.critic = NumericV1(**digits, similarity=dot, seed=0)
    two = WeightedSum(
        rewards={"one": reward(checkpoint), "other": reward(checkpoint)}, weights={"one": 1.0, "other": 1.0}
    )
    for shaped, sentence in (
        (VerifierReward(task=TASK), "one critic of the reward, which has 0: use reward=critic"),
        (two, "one critic of the reward, which has 2: use reward=critic"),
        (v1, "NumericV1 reads more: use critic=joint or critic=numeric_v2"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fit(learner(shaped), 1, online())


def test_a_critic_is_found_inside_other_rewards(checkpoint: str) -> None:
    inner = reward(checkpoint)
    both = WeightedSum(
        rewards={"critic": inner, "verifier": VerifierReward(task=TASK)}, weights={"critic": 1.0, "verifier": 0.1}
    )
    # both name a part after the verifier, so the sum cannot be asked; it can be looked through
    loop = online()
    loop.setup(Trainer(logger=False), learner(both), "fit")
    assert loop.reward is inner
    assert loop.lessons.critic is not inner.critic
    assert not any(parameter.requires_grad for parameter in inner.critic.parameters())


@pytest.mark.parametrize("name", ["learn_every", "refresh_every", "buffer_states", "steps"])
def test_sizes_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=rf"online\.(lessons\.)?{name} must be at least 1, got 0"):
        online(**{name: 0})
